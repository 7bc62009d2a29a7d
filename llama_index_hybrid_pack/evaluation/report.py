"""Several systems in one table."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index_hybrid_pack.errors import EvaluationError
from llama_index_hybrid_pack.evaluation.comparison import compare
from llama_index_hybrid_pack.evaluation.results import RetrievalReport
from llama_index_hybrid_pack.evaluation.tables import (
    headline_metrics,
    markdown_table,
    metric_label,
    text_table,
)


def comparison_table(
    reports: Sequence[RetrievalReport],
    *,
    metrics: Sequence[str] | None = None,
    baseline: str | None = None,
    markdown: bool = False,
) -> str:
    """Return a table of systems side by side: means, intervals, and a test against the first.

    Args:
        reports: Reports on one golden set.
        metrics: Columns; ``None`` = recall at each cut-off, MRR, nDCG.
        baseline: Name of the report that the others are tested against; ``None`` = the first.
        markdown: Markdown instead of text for a terminal.

    Returns:
        The table, with a line per system and one about how to read it.

    Raises:
        EvaluationError: If there is no report, or they cannot be compared.
    """
    if not reports:
        msg = "There is nothing to put into a table. Give at least one report."
        raise EvaluationError(msg)
    shown = headline_metrics(tuple(reports[0].metrics)) if metrics is None else tuple(metrics)
    tested = next((name for name in reversed(shown) if name.startswith("ndcg")), shown[-1])
    base = reports[0].name if baseline is None else baseline
    tests = {item.second: item for item in compare(reports, tested, baseline=base)}
    rows = []
    for report in reports:
        cells = [_cell(report, name) for name in shown]
        test = tests.get(report.name)
        change = "" if test is None else f"{test.difference:+.3f} (p {test.p_adjusted:.3f})"
        counts = [str(report.n_failed), f"{report.latency_p50_ms:.1f}"]
        rows.append([report.name, *cells, change, *counts])
    label = f"{metric_label(tested)} against {base}"
    header = ["system", *map(metric_label, shown), label, "failed", "ms"]
    first = reports[0]
    legend = (
        f"n = {first.n_scored} questions, matched by {first.match}; {first.n_unanswerable} "
        "unanswerable ones left out. Means with 95 % bootstrap intervals; p: paired "
        "randomisation test with Holm's correction; ms: median per question."
    )
    notes = dict.fromkeys(f"{report.name}: {note}" for report in reports for note in report.notes)
    table = markdown_table if markdown else text_table
    return "\n\n".join([table(header, rows), legend, *notes])


def _cell(report: RetrievalReport, metric: str) -> str:
    report.values(metric)  # refuses a metric that is not there
    found = report.metrics[metric]
    return f"{found.mean:.3f} [{found.low:.2f}, {found.high:.2f}]"
