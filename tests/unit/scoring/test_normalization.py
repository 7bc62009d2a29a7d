from __future__ import annotations

import math
import statistics

import pytest

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.scoring.normalization import NORMALIZATIONS, normalize

RELATIVE = ["min_max", "z_score", "dist_based", "theoretical"]


def bounded(scores, method):
    return normalize(scores, method, lower_bound=-100.0 if method == "theoretical" else None)


def test_min_max_gives_the_place_between_worst_and_best() -> None:
    assert normalize([12.0, 3.0, 7.5], "min_max") == [1.0, 0.0, 0.5]


def test_z_score_is_the_distance_from_the_worst_in_standard_deviations() -> None:
    scores = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]
    assert statistics.pstdev(scores) == 2.0
    assert normalize(scores, "z_score") == [0.0, 1.0, 1.0, 1.0, 1.5, 1.5, 2.5, 3.5]


def test_dist_based_maps_three_standard_deviations_around_the_mean_to_0_and_1() -> None:
    scores = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]
    expected = [(score - (5.0 - 6.0)) / 12.0 for score in scores]
    assert normalize(scores, "dist_based") == pytest.approx(expected)


def test_dist_based_keeps_the_order_of_hits_far_above_the_others() -> None:
    values = normalize([1000.0, 990.0, *[1.0] * 60], "dist_based")
    assert values[0] > values[1] > 1.0
    assert all(0.0 < value < 0.5 for value in values[2:])


def test_dist_based_gives_0_to_a_hit_far_below_the_others() -> None:
    assert normalize([*[10.0] * 60, -1000.0], "dist_based")[-1] == 0.0


@pytest.mark.parametrize("scores", [[0.9, 0.71, 0.7, 0.2], [40.0, 30.0, *[2.0, 1.0] * 30]])
def test_dist_based_equals_llama_index(scores) -> None:
    from llama_index.core.llms import MockLLM
    from llama_index.core.retrievers import QueryFusionRetriever
    from llama_index.core.schema import NodeWithScore, TextNode

    theirs = QueryFusionRetriever([], llm=MockLLM(), retriever_weights=[1.0], num_queries=1)
    hits = [
        NodeWithScore(node=TextNode(id_=str(i), text=str(i)), score=score)
        for i, score in enumerate(scores)
    ]
    fused = theirs._relative_score_fusion({("q", 0): hits}, dist_based=True)
    assert normalize(scores, "dist_based") == pytest.approx(
        [hit.score for hit in sorted(fused, key=lambda hit: int(hit.node_id))]
    )


def test_theoretical_counts_from_the_lowest_score_there_can_be() -> None:
    assert normalize([8.0, 2.0], "theoretical", lower_bound=0.0) == [1.0, 0.25]
    assert normalize([0.6, -0.2], "theoretical", lower_bound=-1.0) == pytest.approx([1.0, 0.5])


def test_none_leaves_scores_and_counts_missing_ones_as_0() -> None:
    assert normalize([2.0, None, -1.0], "none") == [2.0, 0.0, -1.0]


@pytest.mark.parametrize("method", RELATIVE)
@pytest.mark.parametrize("score", [12.0, 0.0, -0.3, 1e-9])
def test_a_lone_hit_is_worth_1_whatever_its_score(method, score) -> None:
    assert bounded([score], method) == [1.0]


@pytest.mark.parametrize("method", RELATIVE)
@pytest.mark.parametrize("score", [5.0, 0.0, -5.0])
def test_equal_scores_are_all_worth_1(method, score) -> None:
    assert bounded([score] * 3, method) == [1.0] * 3


@pytest.mark.parametrize("method", ["min_max", "z_score", "dist_based"])
def test_scores_that_differ_by_rounding_alone_are_equal(method) -> None:
    assert normalize([0.1 + 0.2, 0.3], method) == [1.0, 1.0]


@pytest.mark.parametrize("method", RELATIVE)
def test_a_missing_score_counts_as_the_lowest_of_its_list(method) -> None:
    values = bounded([0.9, None, 0.4, 0.5], method)
    assert values[1] == values[2] == min(values)


@pytest.mark.parametrize("method", RELATIVE)
def test_a_list_without_any_score_is_worth_1_each(method) -> None:
    assert bounded([None, None], method) == [1.0, 1.0]


@pytest.mark.parametrize("method", NORMALIZATIONS)
def test_no_hits_give_no_scores(method) -> None:
    assert bounded([], method) == []


@pytest.mark.parametrize("method", RELATIVE)
def test_negative_scores_keep_their_order_and_none_falls_below_0(method) -> None:
    values = bounded([-0.1, -0.5, -0.2, -7.0], method)
    assert sorted(range(4), key=lambda i: -values[i]) == [0, 2, 1, 3]
    assert min(values) >= 0.0


@pytest.mark.parametrize("method", ["dist_based", "theoretical"])
def test_the_worst_hit_of_two_is_better_than_a_hit_that_was_not_found(method) -> None:
    assert bounded([9.0, 8.9], method)[1] > 0.0


@pytest.mark.parametrize("method", ["min_max", "z_score", "dist_based"])
@pytest.mark.parametrize("unit", [1e300, 1e-300])
def test_huge_and_tiny_scores_are_as_good_as_any(method, unit) -> None:
    expected = normalize([3.0, -2.0, 0.5], method)
    assert normalize([3.0 * unit, -2.0 * unit, 0.5 * unit], method) == pytest.approx(expected)


def test_a_width_beyond_a_floats_range_is_no_nan() -> None:
    assert normalize([1.7e308, -1.7e308, 0.0], "min_max") == [1.0, 0.0, 0.5]


@pytest.mark.parametrize("method", NORMALIZATIONS)
@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_refused(method, score) -> None:
    with pytest.raises(ConfigError, match="finite"):
        bounded([0.5, score], method)


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'softmax'.*min_max"):
        normalize([1.0], "softmax")  # type: ignore[arg-type]


@pytest.mark.parametrize("bound", [None, math.nan, -math.inf])
def test_theoretical_needs_a_finite_lower_bound(bound) -> None:
    with pytest.raises(ConfigError, match="lower_bound"):
        normalize([1.0], "theoretical", lower_bound=bound)


def test_a_score_below_the_theoretical_bound_counts_as_0() -> None:
    assert normalize([2.0, -1.0], "theoretical", lower_bound=0.0) == [1.0, 0.0]
    assert normalize([-2.0, -1.0], "theoretical", lower_bound=0.0) == [1.0, 1.0]


def test_results_are_plain_floats_of_any_number_type() -> None:
    import numpy as np

    values = normalize(list(np.float32([1, 2, 3])), "min_max")
    assert [type(value) for value in values] == [float] * 3
