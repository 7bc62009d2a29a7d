"""Metrics: worked examples, reported faults, hand-computed values."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llama_index_hybrid_pack.errors import EvaluationError
from llama_index_hybrid_pack.evaluation.metrics import (
    parse_metric,
    score_rankings,
    standard_metrics,
)

pytest.importorskip("ranx", reason="needs pip install 'llama-index-hybrid-pack[eval]'")
ALL = [*standard_metrics([1, 3, 5]), "mrr@1", "map@3"]


def one(relevant: dict[str, float], ranking: list[str], metric: str) -> float:
    return score_rankings({"q": relevant}, {"q": ranking}, [metric])[metric]["q"]


def test_the_worked_example_of_the_literature() -> None:
    run = {
        "q1": ["d1", "d2", "d4"],
        "q2": ["d2", "d3", "d1"],
        "q3": ["d2", "d1", "d3"],
        "q4": ["d2", "d4", "d1"],
    }
    qrels = {"q1": {"d1": 1}, "q2": {"d3": 1}, "q3": {"d4": 1}, "q4": {"d1": 1, "d2": 1}}
    scores = score_rankings(qrels, run, ["hit_rate@1", "hit_rate@3", "mrr"])
    means = {name: sum(values.values()) / 4 for name, values in scores.items()}
    assert means == {"hit_rate@1": 0.5, "hit_rate@3": 0.75, "mrr": 0.625}


def test_repeated_ids_are_counted_once(cases_dir: Path) -> None:
    case = json.loads((cases_dir / "B50.json").read_text())
    given, right = case["input"], case["expected"]
    once = dict.fromkeys(given["expected"], 1)
    assert one(once, given["retrieved"], "map") == right["ap"]
    assert one(once, given["retrieved"], "ndcg@2") == right["ndcg"]
    also = given["also"]
    assert (
        one(dict.fromkeys(also["expected"], 1), also["retrieved"], "ndcg@1")
        == (right["ndcg_dup_expected"])
    )


@pytest.mark.parametrize("metric", ALL)
@pytest.mark.parametrize("ranking", [["a", "a", "a"], ["b", "a", "b", "a"], ["a", "b", "a"]])
def test_repeats_change_nothing_and_stay_within_bounds(metric: str, ranking: list[str]) -> None:
    """F35: average precision of ["a", "a", "a"] was 1.5."""
    value = one({"a": 1, "b": 2}, ranking, metric)
    assert value == one({"a": 1, "b": 2}, list(dict.fromkeys(ranking)), metric)
    assert 0.0 <= value <= 1.0


@pytest.mark.parametrize("metric", ALL)
def test_an_empty_result_counts_as_zero(cases_dir: Path, metric: str) -> None:
    case = json.loads((cases_dir / "B51.json").read_text())["input"]
    assert one(dict.fromkeys(case["expected"], 1), case["retrieved"], metric) == 0.0
    # Neither is a question that is missing from the run, beside one that is not.
    scores = score_rankings({"q": {"x": 1}, "r": {"x": 1}}, {"r": ["x"]}, [metric])[metric]
    assert scores["q"] == 0.0
    assert scores["r"] > 0.0


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        # a at rank 2 with grade 2, b at rank 4 with grade 1, c is not found.
        ("hit_rate@1", 0.0),
        ("hit_rate@3", 1.0),
        ("recall@3", 1 / 3),
        ("recall@5", 2 / 3),
        ("precision@3", 1 / 3),
        ("precision@5", 2 / 5),
        ("mrr", 1 / 2),
        ("mrr@1", 0.0),
        ("map", (1 / 2 + 2 / 4) / 3),
        ("map@3", (1 / 2) / 3),
        (
            "ndcg@5",
            (2 / math.log2(3) + 1 / math.log2(5))
            / (3 / math.log2(2) + 2 / math.log2(3) + 1 / math.log2(4)),
        ),
        ("ndcg@2", (2 / math.log2(3)) / (3 / math.log2(2) + 2 / math.log2(3))),
    ],
)
def test_values_by_hand(metric: str, value: float) -> None:
    relevant = {"b": 1, "a": 2, "c": 3}
    assert one(relevant, ["x", "a", "y", "b"], metric) == pytest.approx(value, abs=1e-12)


def test_a_perfect_ranking_cut_at_k_has_ndcg_1() -> None:
    """LlamaIndex's ideal takes all relevant ids, so that a perfect top 2 of 10 got 0.36."""
    relevant = {f"d{i}": 1 for i in range(10)}
    assert one(relevant, ["d3", "d7"], "ndcg@2") == 1.0


def test_the_given_order_is_the_rank_whatever_the_length() -> None:
    ranking = [f"d{i}" for i in range(5_000)]
    assert one({"d4999": 1}, ranking, "mrr") == pytest.approx(1 / 5_000)


def test_ids_that_only_differ_in_odd_characters_differ() -> None:
    names = ["a", "a\0", "a ", "A", "á", "a\u0301"]
    for place, name in enumerate(names, start=1):
        assert one({name: 1}, names, "mrr") == pytest.approx(1 / place)


def test_questions_without_relevant_items_are_left_out_and_grade_0_is_not_relevant() -> None:
    qrels = {"none": {}, "judged": {"a": 0}, "q": {"a": 0, "b": 1}}
    run = {"none": ["a"], "judged": ["a"], "q": ["a", "b"]}
    assert score_rankings(qrels, run, ["mrr"]) == {"mrr": {"q": 0.5}}
    assert score_rankings({"none": {}}, {}, ["mrr", "recall@5"]) == {"mrr": {}, "recall@5": {}}


def test_a_run_with_unknown_questions_is_refused() -> None:
    with pytest.raises(EvaluationError, match="1 questions without qrels, for example 'r'"):
        score_rankings({"q": {"a": 1}}, {"r": ["a"]}, ["mrr"])


@pytest.mark.parametrize(
    "name", ["", "mrrr", "recall", "recall@", "recall@0", "recall@-1", "recall@5.0", "ndcg@²", "@5"]
)
def test_unknown_metrics_and_cutoffs_are_refused(name: str) -> None:
    with pytest.raises(EvaluationError, match="metric"):
        parse_metric(name)


def test_many_threads_may_score_at_once() -> None:
    def work(i: int) -> float:
        return one({"a": 1}, ["b"] * i + ["a"], "mrr")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, [0, 1] * 20)) == [1.0, 0.5] * 20


def test_importing_the_evaluation_loads_no_ranx() -> None:
    code = (
        "import sys, llama_index_hybrid_pack.evaluation.evaluator as e;"
        "print([m for m in ('ranx', 'numba', 'torch', 'ragas', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
