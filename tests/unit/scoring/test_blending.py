from __future__ import annotations

import pytest

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.scoring.blending import blend_scores, complete_scores


def order(scores: list[float | None]) -> list[int]:
    return sorted(range(len(scores)), key=lambda i: -(scores[i] if scores[i] is not None else -9e9))


def test_min_max_blend_by_hand() -> None:
    blended = blend_scores([10.0, 5.0, 0.0], [0.2, 0.6, 1.0], weight=0.25, normalization="min_max")
    assert blended == pytest.approx([0.75, 0.75 * 0.5 + 0.25 * 0.5, 0.25])


def test_z_score_blend_by_hand() -> None:
    # Both lists have a standard deviation of sqrt(2/3) times their step.
    deviation = (2 / 3) ** 0.5
    blended = blend_scores([3.0, 2.0, 1.0], [10.0, 30.0, 20.0], weight=0.5)
    assert blended == pytest.approx([1 / deviation, 1.5 / deviation, 0.5 / deviation])


def test_weight_zero_and_one_are_the_two_orders() -> None:
    first, second = [0.9, 0.5, 0.1], [-3.0, 4.0, 1.0]
    assert order(blend_scores(first, second, weight=0)) == [0, 1, 2]
    assert order(blend_scores(first, second, weight=1)) == [1, 2, 0]


@pytest.mark.parametrize("normalization", ["z_score", "min_max"])
def test_scales_do_not_matter(normalization: str) -> None:
    first, second = [0.03, 0.02, 0.01], [-8.0, 4.0, 1.0]
    want = blend_scores(first, second, weight=0.4, normalization=normalization)
    got = blend_scores(
        [1e6 * x - 7 for x in first],
        [1e-6 * x for x in second],
        weight=0.4,
        normalization=normalization,
    )
    assert got == pytest.approx(want)


@pytest.mark.parametrize("normalization", ["z_score", "min_max"])
@pytest.mark.parametrize("scores", [[0.4], [0.0, 0.0], [-2.0, -2.0], [0.1 + 0.2, 0.3]])
def test_equal_scores_of_one_stage_leave_the_order_to_the_other(
    normalization: str, scores: list[float]
) -> None:
    other = [float(i) for i in range(len(scores))]
    after = blend_scores(scores, other, weight=0.5, normalization=normalization)
    assert order(after) == list(range(len(scores)))[::-1]
    before = blend_scores(other, scores, weight=0.5, normalization=normalization)
    assert order(before) == list(range(len(scores)))[::-1]


def test_a_missing_first_score_counts_as_the_lowest_known() -> None:
    with_none = blend_scores([0.9, None, 0.2, float("nan")], [1.0, 2.0, 3.0, 4.0], weight=0.5)
    assert with_none == blend_scores([0.9, 0.2, 0.2, 0.2], [1.0, 2.0, 3.0, 4.0], weight=0.5)


def test_without_any_first_score_the_ranking_counts() -> None:
    assert order(blend_scores([None] * 3, [1.0, 1.0, 1.0], weight=0.5)) == [0, 1, 2]
    assert complete_scores([None, None, None]) == [3.0, 2.0, 1.0]


def test_a_candidate_that_was_not_reranked_gets_no_score_and_moves_no_other() -> None:
    blended = blend_scores([0.9, 0.5, 0.1], [2.0, None, 1.0], weight=0.5)
    assert blended[1] is None
    assert [blended[0], blended[2]] == blend_scores([0.9, 0.1], [2.0, 1.0], weight=0.5)
    assert blend_scores([], [], weight=0.5) == []


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_a_weight_out_of_range_is_refused(weight: float) -> None:
    with pytest.raises(ConfigError, match="weight"):
        blend_scores([1.0], [1.0], weight=weight)


def test_lists_of_different_length_and_unknown_methods_are_refused() -> None:
    with pytest.raises(ConfigError, match="2 first and 1 second"):
        blend_scores([1.0, 2.0], [1.0], weight=0.5)
    with pytest.raises(ConfigError, match="softmax"):
        blend_scores([1.0, 2.0], [1.0, 2.0], weight=0.5, normalization="softmax")
