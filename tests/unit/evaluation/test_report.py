"""Comparisons of systems and the tables of them."""

from __future__ import annotations

import pytest

from llama_index_hybrid_pack.errors import EvaluationError
from llama_index_hybrid_pack.evaluation.comparison import compare
from llama_index_hybrid_pack.evaluation.report import comparison_table
from llama_index_hybrid_pack.evaluation.results import (
    QuestionResult,
    RetrievalReport,
    summarize,
)
from llama_index_hybrid_pack.evaluation.significance import holm
from llama_index_hybrid_pack.evaluation.tables import headline_metrics, metric_label


def report(name: str, values: list[float], *, first: int = 0, notes=()) -> RetrievalReport:
    scores = {
        metric: {f"q{first + i}": value for i, value in enumerate(values)}
        for metric in ("recall@5", "mrr", "ndcg@10")
    }
    questions = tuple(
        QuestionResult(
            id=f"q{first + i}",
            items=(),
            n_hits=0,
            latency_ms=1.0,
            metrics=dict.fromkeys(scores, value),
        )
        for i, value in enumerate(values)
    )
    return RetrievalReport(
        name=name,
        match="node",
        metrics=summarize(scores, seed=0),
        tags={},
        questions=questions,
        failures={},
        n_unanswerable=0,
        n_unanswerable_empty=0,
        latency_p50_ms=1.25,
        latency_p95_ms=2.0,
        notes=notes,
    )


LOW, MIDDLE, HIGH = (
    report("low", [0.1] * 8),
    report("mid", [0.1, 0.2] * 4),
    report("high", [0.9] * 8),
)


def test_all_pairs_are_compared_and_corrected_together() -> None:
    found = compare([LOW, MIDDLE, HIGH])
    assert [(item.first, item.second) for item in found] == [
        ("low", "mid"),
        ("low", "high"),
        ("mid", "high"),
    ]
    assert [item.difference for item in found] == pytest.approx([0.05, 0.8, 0.75])
    assert found[0].p_value == 2 / 2**4
    assert found[1].p_value == 2 / 2**8
    assert [item.p_adjusted for item in found] == holm([item.p_value for item in found])
    assert all(item.n == 8 for item in found)
    assert (found[1].low, found[1].high) == pytest.approx((0.8, 0.8))
    assert found[0].low < 0.05 < found[0].high


def test_a_baseline_leaves_fewer_comparisons() -> None:
    found = compare([LOW, MIDDLE, HIGH], "mrr", baseline="mid")
    assert [(item.first, item.second) for item in found] == [("mid", "low"), ("mid", "high")]
    assert found[0].difference == pytest.approx(-0.05)
    assert compare([LOW]) == []


def test_a_comparison_can_be_read() -> None:
    assert str(compare([LOW, HIGH])[0]) == (
        "high - low: nDCG@10 +0.800 [+0.800, +0.800], p = 0.0078, 0.0078 after Holm's "
        "correction, n = 8"
    )


@pytest.mark.parametrize(
    ("reports", "options", "says"),
    [
        ([LOW, LOW], {}, "Names of reports must differ"),
        ([LOW, HIGH], {"baseline": "none"}, "no report 'none'"),
        ([LOW, HIGH], {"metric": "ndcg@5"}, "'low' has no 'ndcg@5'. It has recall@5, mrr, ndcg@10"),
        ([LOW, report("other", [0.5] * 8, first=3)], {}, "not scored on the same questions"),
        ([LOW, report("fewer", [0.5] * 7)], {}, "not scored on the same questions"),
    ],
)
def test_what_cannot_be_compared_is_refused(reports, options, says: str) -> None:
    with pytest.raises(EvaluationError, match=says):
        compare(reports, **options)


def test_the_order_of_the_questions_does_not_matter() -> None:
    first = report("a", [0.0, 0.5, 1.0])
    turned = RetrievalReport.from_dict(
        {**first.to_dict(), "name": "b", "questions": first.to_dict()["questions"][::-1]}
    )
    assert compare([first, turned])[0].difference == 0.0
    assert compare([first, turned])[0].p_value == 1.0


def test_the_table_has_a_line_per_system_and_says_how_to_read_it() -> None:
    table = comparison_table([LOW, HIGH])
    lines = table.splitlines()
    assert lines[0].split("  ")[0] == "system"
    assert "nDCG@10 against low" in lines[0]
    assert lines[2].startswith("low     0.100 [0.10, 0.10]")
    assert "+0.800 (p 0.008)" in lines[3]
    assert "n = 8 questions, matched by node" in table


def test_the_table_as_markdown_with_chosen_columns() -> None:
    table = comparison_table([LOW, HIGH], metrics=["recall@5"], baseline="high", markdown=True)
    assert table.startswith("| system | recall@5 | recall@5 against high | failed | ms |\n")
    assert "| low | 0.100 [0.10, 0.10] | -0.800 (p 0.008) | 0 | 1.2 |" in table


def test_the_notes_of_each_system_are_below_the_table() -> None:
    table = comparison_table([LOW, report("short", [0.1] * 8, notes=("Short lists.",))])
    assert table.endswith("short: Short lists.")


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(EvaluationError, match="at least one report"):
        comparison_table([])
    with pytest.raises(EvaluationError, match="has no 'map'"):
        comparison_table([LOW], metrics=["map"])


def test_the_metrics_of_a_line() -> None:
    names = [
        "hit_rate@5",
        "recall@5",
        "precision@5",
        "ndcg@5",
        "recall@10",
        "ndcg@10",
        "mrr",
        "map",
    ]
    assert headline_metrics(names) == ("recall@5", "recall@10", "mrr", "ndcg@10")
    assert headline_metrics(["hit_rate@1", "map"]) == ("hit_rate@1", "map")
    assert [metric_label(name) for name in ("hit_rate@1", "map", "ndcg@5")] == [
        "hit rate@1",
        "MAP",
        "nDCG@5",
    ]
