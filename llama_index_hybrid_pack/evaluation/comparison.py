"""Systems against each other on the same questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from llama_index_hybrid_pack.errors import EvaluationError
from llama_index_hybrid_pack.evaluation.results import RetrievalReport
from llama_index_hybrid_pack.evaluation.significance import bootstrap_intervals, holm, paired_test
from llama_index_hybrid_pack.evaluation.tables import metric_label


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same questions.

    Args:
        first: Name of the one.
        second: Name of the other.
        metric: What was compared.
        difference: Mean of second - first.
        low: Lower end of its 95 % bootstrap interval.
        high: Upper end.
        p_value: Of a paired randomisation test, two-sided.
        p_adjusted: The same after Holm's correction for all comparisons made together.
        n: Number of questions.
    """

    first: str
    second: str
    metric: str
    difference: float
    low: float
    high: float
    p_value: float
    p_adjusted: float
    n: int

    def __str__(self) -> str:
        return (
            f"{self.second} - {self.first}: {metric_label(self.metric)} {self.difference:+.3f} "
            f"[{self.low:+.3f}, {self.high:+.3f}], p = {self.p_value:.4f}, "
            f"{self.p_adjusted:.4f} after Holm's correction, n = {self.n}"
        )


def compare(
    reports: Sequence[RetrievalReport],
    metric: str = "ndcg@10",
    *,
    baseline: str | None = None,
    seed: int = 0,
) -> list[Comparison]:
    """Compare systems by paired tests on the same questions, corrected for their number.

    Args:
        reports: Reports on one golden set, names all different.
        metric: A metric that all have.
        baseline: Compare every report with the one of this name; ``None`` = all pairs.
        seed: Of the tests and intervals.

    Returns:
        The comparisons, in the order of the reports.

    Raises:
        EvaluationError: If a name repeats, the baseline or metric is missing, or the reports are
            not about the same questions.
    """
    by_name = {report.name: report for report in reports}
    if len(by_name) != len(reports):
        msg = f"Names of reports must differ, these are {[report.name for report in reports]}."
        raise EvaluationError(msg)
    if baseline is not None and baseline not in by_name:
        msg = f"There is no report {baseline!r}. There are {list(by_name)}."
        raise EvaluationError(msg)
    names = list(by_name)
    pairs = (
        [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
        if baseline is None
        else [(baseline, name) for name in names if name != baseline]
    )
    found = [_compare_pair(by_name[a], by_name[b], metric, seed) for a, b in pairs]
    adjusted = holm([item.p_value for item in found])
    return [replace(item, p_adjusted=p) for item, p in zip(found, adjusted, strict=True)]


def _compare_pair(
    first: RetrievalReport, second: RetrievalReport, metric: str, seed: int
) -> Comparison:
    a, b = first.values(metric), second.values(metric)
    if a.keys() != b.keys() or not a:
        msg = (
            f"{first.name!r} and {second.name!r} were not scored on the same questions "
            f"({len(a)} and {len(b)}), so there is nothing to pair. Evaluate both on one golden "
            "set."
        )
        raise EvaluationError(msg)
    before = np.array(list(a.values()))
    after = np.array([b[name] for name in a])
    low, high = bootstrap_intervals(after - before, seed=seed).tolist()
    p = paired_test(before, after, seed=seed)
    difference = float((after - before).mean())
    return Comparison(first.name, second.name, metric, difference, low, high, p, p, len(a))
