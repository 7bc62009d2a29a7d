"""What an evaluation found for one retriever."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from llama_index_hybrid_pack.errors import EvaluationError
from llama_index_hybrid_pack.evaluation.significance import bootstrap_intervals
from llama_index_hybrid_pack.evaluation.tables import (
    headline_metrics,
    markdown_table,
    metric_label,
    text_table,
)

_Table = Callable[[Sequence[str], Sequence[Sequence[str]]], str]


@dataclass(frozen=True)
class MetricSummary:
    """Mean of a metric with its bootstrap interval and the number of questions behind it."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class QuestionResult:
    """What one question gave.

    Args:
        id: The question's id.
        items: Ranked items (see :mod:`~llama_index_hybrid_pack.evaluation.matching`).
        n_hits: Number of hits.
        latency_ms: Wall time of retrieval and postprocessors.
        metrics: Metric → value; empty for an unanswerable question.
        error: Type and message of what was raised, or ``None``.
    """

    id: str
    items: tuple[str, ...]
    n_hits: int
    latency_ms: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class RetrievalReport:
    """What :class:`~llama_index_hybrid_pack.RetrievalEvaluator` found for one retriever.

    Args:
        name: Name of what was measured.
        match: How hits were matched.
        metrics: Metric → mean, interval and n over all answerable questions.
        tags: Tag → metric → mean, interval and n over the questions of that tag.
        questions: One result per question of the golden set, in its order.
        failures: Type of error → number of questions that raised it; each counts as 0.
        n_unanswerable: Questions that nothing answers; they are in no mean.
        n_unanswerable_empty: Those among them for which nothing came back.
        latency_p50_ms: Median wall time of a question.
        latency_p95_ms: 95th percentile of it.
        notes: What must be known to read the figures.
    """

    name: str
    match: str
    metrics: Mapping[str, MetricSummary]
    tags: Mapping[str, Mapping[str, MetricSummary]]
    questions: tuple[QuestionResult, ...]
    failures: Mapping[str, int]
    n_unanswerable: int
    n_unanswerable_empty: int
    latency_p50_ms: float
    latency_p95_ms: float
    notes: tuple[str, ...] = ()

    @property
    def n_scored(self) -> int:
        """Questions behind the means."""
        return len(self.questions) - self.n_unanswerable

    @property
    def n_failed(self) -> int:
        """Questions that raised an error, unanswerable ones included."""
        return sum(self.failures.values())

    def values(self, metric: str) -> dict[str, float]:
        """Return a metric per question.

        Args:
            metric: A metric of this report, for example ``"ndcg@10"``.

        Returns:
            Question id → value, without unanswerable questions.

        Raises:
            EvaluationError: If the report does not have the metric.
        """
        if metric not in self.metrics:
            msg = f"{self.name!r} has no {metric!r}. It has {', '.join(self.metrics)}."
            raise EvaluationError(msg)
        return {item.id: item.metrics[metric] for item in self.questions if item.metrics}

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able values, with the counts beside it."""
        return {**asdict(self), "n_scored": self.n_scored, "n_failed": self.n_failed}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RetrievalReport:
        """Build a report from what :meth:`to_dict` returned, also after a way through JSON.

        Args:
            data: The values.

        Returns:
            An equal report.

        Raises:
            EvaluationError: If the values are not those of a report.
        """
        names = [item.name for item in fields(cls)]
        try:
            values = {name: data[name] for name in names}
            values["metrics"] = _summaries(values["metrics"])
            values["tags"] = {tag: _summaries(found) for tag, found in values["tags"].items()}
            values["questions"] = tuple(
                QuestionResult(**{**item, "items": tuple(item["items"])})
                for item in values["questions"]
            )
            values["notes"] = tuple(values["notes"])
            return cls(**values)
        except (KeyError, TypeError, AttributeError) as error:
            msg = f"This is no report of a retrieval evaluation: {error!r}."
            raise EvaluationError(msg) from error

    def __str__(self) -> str:
        return "\n\n".join([self._head(), *self._tables(text_table), *self._notes()])

    def to_markdown(self) -> str:
        """Return the report as Markdown, for a pull request."""
        head = f"**{self._head()}**"
        return "\n\n".join([head, *self._tables(markdown_table), *self._notes()])

    def _head(self) -> str:
        return (
            f"{self.name}: {self.n_scored} questions scored by {self.match}, "
            f"{self.n_unanswerable} unanswerable left out, {self.n_failed} failed; "
            f"latency p50 {self.latency_p50_ms:.1f} ms, p95 {self.latency_p95_ms:.1f} ms"
        )

    def _tables(self, table: _Table) -> list[str]:
        means = [
            [metric_label(name), f"{found.mean:.3f}", f"[{found.low:.3f}, {found.high:.3f}]"]
            for name, found in self.metrics.items()
        ]
        tables = [table(["metric", "mean", "95 % interval"], means)]
        if self.tags:
            shown = headline_metrics(tuple(self.metrics))
            rows = [
                [tag, str(found[shown[0]].n), *(f"{found[name].mean:.3f}" for name in shown)]
                for tag, found in self.tags.items()
            ]
            tables.append(table(["tag", "n", *map(metric_label, shown)], rows))
        return tables

    def _notes(self) -> list[str]:
        failed = [f"{count} x {error}" for error, count in self.failures.items()]
        notes = [f"Failures, each counted as 0: {', '.join(failed)}."] if failed else []
        return [*notes, *self.notes]


def summarize(values: Mapping[str, Mapping[str, float]], *, seed: int) -> dict[str, MetricSummary]:
    """Return mean and bootstrap interval of each metric over the same questions.

    Args:
        values: Metric → question id → value; all with the same questions.
        seed: Of the bootstrap.

    Returns:
        Metric → summary; NaN where there is no question.
    """
    table = np.array([list(found.values()) for found in values.values()], dtype=np.float64).T
    table = table.reshape(-1, len(values))
    n = len(table)
    means = table.mean(axis=0) if n else np.full(len(values), np.nan)
    low, high = bootstrap_intervals(table, seed=seed)
    rows = zip(values, means.tolist(), low.tolist(), high.tolist(), strict=True)
    return {name: MetricSummary(mean, a, b, n) for name, mean, a, b in rows}


def _summaries(data: Mapping[str, Any]) -> dict[str, MetricSummary]:
    return {name: MetricSummary(**found) for name, found in data.items()}
