from __future__ import annotations

import json
import math

import pytest

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.scoring.fusion import (
    by_score,
    check_weights,
    reciprocal_rank_fusion,
    weighted_fusion,
)


def rounded(fused, digits=4):
    return [(name, round(score, digits)) for name, score in fused]


# -- reciprocal ranks


def test_worked_example_of_two_rankings() -> None:
    fused = reciprocal_rank_fusion([["d1", "d2", "d4"], ["d2", "d4", "d1"]], k=60)
    assert rounded(fused) == [("d2", 0.0325), ("d1", 0.0323), ("d4", 0.032)]


def test_worked_example_of_rank_2_beside_ranks_1_and_3() -> None:
    rankings = [["x", "d"], ["d"], ["y", "z", "d"]]
    assert dict(reciprocal_rank_fusion(rankings))["d"] == pytest.approx(1 / 62 + 1 / 61 + 1 / 63)


def test_ranks_start_at_1() -> None:  # F09
    assert reciprocal_rank_fusion([["a"]]) == [("a", 1 / 61)]
    assert reciprocal_rank_fusion([["a"]], k=0) == [("a", 1.0)]


def test_the_given_order_is_the_rank() -> None:  # F15
    assert [name for name, _ in reciprocal_rank_fusion([["m1", "m2", "m3"]])] == ["m1", "m2", "m3"]
    assert [name for name, _ in reciprocal_rank_fusion([["m3", "m1", "m2"]])] == ["m3", "m1", "m2"]


def test_weights_decide_the_order() -> None:  # F08
    rankings = [["a"], ["b"]]
    assert [name for name, _ in reciprocal_rank_fusion(rankings, weights=[0.9, 0.1])] == ["a", "b"]
    assert [name for name, _ in reciprocal_rank_fusion(rankings, weights=[0.1, 0.9])] == ["b", "a"]


def test_a_list_of_weight_0_is_not_consulted(cases_dir) -> None:
    case = json.loads((cases_dir / "B16.json").read_text())
    lists, weights = case["input"]["lists"], case["input"]["weights"]
    assert reciprocal_rank_fusion(lists, weights=weights) == [(case["expected"]["first"], 1 / 61)]
    scored = [[(name, 1.0) for name in ids] for ids in lists]
    assert weighted_fusion(scored, weights=weights) == [(case["expected"]["first"], 1.0)]


def test_an_id_repeated_in_a_list_counts_once_at_its_best_rank() -> None:
    fused = reciprocal_rank_fusion([["a", "b", "a", "c"]])
    assert fused == [("a", 1 / 61), ("b", 1 / 62), ("c", 1 / 63)]


def test_equal_scores_are_ordered_by_id_and_not_by_list() -> None:
    assert [name for name, _ in reciprocal_rank_fusion([["b"], ["a"]])] == ["a", "b"]
    assert by_score([("b", 1.0), ("a", 1.0)]) == [("a", 1.0), ("b", 1.0)]


def test_no_lists_and_empty_lists_give_nothing() -> None:
    assert reciprocal_rank_fusion([]) == []
    assert reciprocal_rank_fusion([[], []]) == []
    assert weighted_fusion([]) == []
    assert weighted_fusion([[], []]) == []


@pytest.mark.parametrize("k", [-1, math.nan, math.inf, "60", None, True])
def test_an_impossible_k_is_refused(k) -> None:
    with pytest.raises(ConfigError, match="at least 0"):
        reciprocal_rank_fusion([["a"]], k=k)


# -- weights


@pytest.mark.parametrize("weights", [[-1.0, 1.0], [math.nan, 1.0], [math.inf, 1.0], ["1", 1.0]])
def test_an_impossible_weight_is_refused(weights) -> None:
    with pytest.raises(ConfigError, match="at least 0"):
        check_weights(weights, 2)


def test_weights_that_are_all_0_are_refused() -> None:
    with pytest.raises(ConfigError, match="All weights are 0"):
        check_weights([0, 0.0], 2)


@pytest.mark.parametrize("weights", [[], [1.0], [1.0, 1.0, 1.0]])
def test_as_many_weights_as_lists_are_needed(weights) -> None:
    for fuse in (reciprocal_rank_fusion, weighted_fusion):
        with pytest.raises(ConfigError, match=r"weights were given for 2 lists"):
            fuse([[], []], weights=weights)


# -- scores


def test_weights_are_brought_to_a_sum_of_1() -> None:
    lists = [[("a", 3.0), ("b", 1.0)], [("b", 0.9), ("a", 0.1)]]
    expected = [("a", 0.75), ("b", 0.25)]
    assert weighted_fusion(lists, weights=[3, 1]) == expected
    assert weighted_fusion(lists, weights=[0.75, 0.25]) == expected


def test_raw_scores_of_one_list_cannot_outweigh_another() -> None:
    bm25, dense = [("a", 1200.0), ("b", 3.0)], [("b", 0.9), ("a", 0.1)]
    assert weighted_fusion([bm25, dense], weights=[0.4, 0.6])[0] == ("b", 0.6)


def test_a_hit_without_a_score_is_kept(cases_dir) -> None:
    case = json.loads((cases_dir / "B17.json").read_text())
    lists = [[(name, score) for name, score in hits] for hits in case["input"]["lists"]]
    for normalization in ("min_max", "z_score", "dist_based", "none"):
        fused = dict(weighted_fusion(lists, normalization=normalization))
        assert ("B" in fused) is case["expected"]["B_kept"]
        assert all(math.isfinite(score) for score in fused.values())


def test_a_list_without_any_score_counts_by_its_order() -> None:
    fused = weighted_fusion([[("c", None), ("a", None), ("b", None)]])
    assert fused == [("c", 1.0), ("a", 0.5), ("b", 0.0)]
    fused = weighted_fusion([[("c", None), ("a", None)]], normalization="theoretical")
    assert fused == [("c", 1.0), ("a", 0.5)]


def test_theoretical_bounds_belong_to_the_lists() -> None:
    bm25, dense = [("a", 8.0), ("b", 2.0)], [("b", 0.6), ("a", -0.2)]
    fused = dict(
        weighted_fusion([bm25, dense], normalization="theoretical", lower_bounds=[0.0, -1.0])
    )
    assert fused == pytest.approx({"a": 0.5 + 0.25, "b": 0.125 + 0.5})
    with pytest.raises(ConfigError, match="1 lower bounds"):
        weighted_fusion([bm25, dense], normalization="theoretical", lower_bounds=[0.0])


def test_an_id_repeated_in_a_list_counts_with_its_first_score() -> None:
    assert weighted_fusion([[("a", 2.0), ("a", 0.0), ("b", 1.0)]]) == [("a", 1.0), ("b", 0.0)]


def test_inputs_stay_as_they_are() -> None:  # F10
    rankings = [["a", "b", "a"], ["b"]]
    scored = [[("a", 2.0), ("b", None)], [("b", 1.0)]]
    reciprocal_rank_fusion(rankings, weights=[1, 0])
    weighted_fusion(scored, weights=[1, 0])
    assert rankings == [["a", "b", "a"], ["b"]]
    assert scored == [[("a", 2.0), ("b", None)], [("b", 1.0)]]
