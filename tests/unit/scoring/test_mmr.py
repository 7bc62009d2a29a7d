from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from llama_index_hybrid_pack.errors import ConfigError, EmbeddingError
from llama_index_hybrid_pack.scoring.mmr import mmr_rank, mmr_select, mmr_select_by_similarity

SIMILARITIES = {
    (0, 1): 0.98, (0, 2): 0.20, (0, 3): 0.15, (0, 4): 0.10, (1, 2): 0.18,
    (1, 3): 0.14, (1, 4): 0.12, (2, 3): 0.30, (2, 4): 0.25, (3, 4): 0.20,
}  # fmt: skip


def worked_example() -> tuple[list[float], np.ndarray]:
    similarity = np.eye(5)
    for (i, j), value in SIMILARITIES.items():
        similarity[i, j] = similarity[j, i] = value
    return [0.95, 0.94, 0.80, 0.75, 0.60], similarity


def test_worked_example_picks_0_2_3() -> None:
    relevance, similarity = worked_example()
    assert mmr_select_by_similarity(relevance, similarity, lambda_mult=0.7, k=3) == [0, 2, 3]


def test_worked_example_picks_the_same_from_vectors_with_these_cosines() -> None:
    relevance, similarity = worked_example()
    vectors = np.linalg.cholesky(similarity)
    assert mmr_select(relevance, vectors, lambda_mult=0.7, k=3) == [0, 2, 3]


def test_case_b27_a_copy_of_the_first_pick_stays_held_back(cases_dir: Path) -> None:
    case = json.loads((cases_dir / "B27.json").read_text(encoding="utf-8"))
    names = list(case["input"]["vectors"])
    vectors = np.array([case["input"]["vectors"][name] for name in names])
    query = np.array(case["input"]["query"])
    relevance = vectors @ query / np.linalg.norm(vectors, axis=1)
    picked = mmr_select(
        relevance, vectors, lambda_mult=case["input"]["lambda"], k=case["input"]["k"]
    )
    assert [names[i] for i in picked] == case["expected"]["picked"]


@pytest.mark.parametrize("steps_between", [1, 2, 3])
def test_a_near_copy_of_any_earlier_pick_comes_last(steps_between: int) -> None:
    """The whole kind of B27: the copied pick may lie any number of steps back."""
    n = steps_between + 1
    vectors = np.vstack([np.eye(n), np.eye(n)[0]])
    relevance = [*np.linspace(0.9, 0.8, n), 0.85]
    picked = mmr_select(relevance, vectors, lambda_mult=0.5, k=n + 1)
    assert picked == [*range(n), n]


def test_lambda_one_is_the_order_of_relevance() -> None:
    relevance, similarity = worked_example()
    shuffled = [3, 0, 4, 2, 1]
    picked = mmr_select_by_similarity(
        [relevance[i] for i in shuffled],
        similarity[np.ix_(shuffled, shuffled)],
        lambda_mult=1,
        k=5,
    )
    assert [shuffled[i] for i in picked] == [0, 1, 2, 3, 4]


def test_lambda_zero_starts_at_the_most_relevant_and_then_only_spreads() -> None:
    relevance, similarity = worked_example()
    order = [4, 1, 2, 3, 0]
    picked = mmr_select_by_similarity(
        [relevance[i] for i in order], similarity[np.ix_(order, order)], lambda_mult=0, k=3
    )
    assert [order[i] for i in picked] == [0, 4, 3]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_candidates_are_picked_in_order_of_position(dtype: type) -> None:
    vector = np.random.default_rng(0).normal(size=384).astype(dtype)
    vectors = np.tile(vector, (37, 1))
    assert mmr_select([0.3] * 37, vectors, lambda_mult=0.5, k=37) == list(range(37))


def test_length_of_vectors_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(20, 8))
    relevance = rng.random(20)
    lengths = rng.uniform(0.1, 9, size=(20, 1))
    assert mmr_select(relevance, vectors, lambda_mult=0.4, k=20) == mmr_select(
        relevance, vectors * lengths, lambda_mult=0.4, k=20
    )


def test_a_zero_vector_is_similar_to_nothing() -> None:
    picks = mmr_rank([1.0, 0.9, 0.8], [[1, 0], [1, 0], [0, 0]], lambda_mult=0.5, k=3)
    assert [(pick.position, pick.max_similarity) for pick in picks] == [
        (0, 0.0),
        (2, 0.0),
        (1, 1.0),
    ]


def test_a_pick_says_why() -> None:
    pick = mmr_rank([1.0, 0.5], [[1, 0], [1, 0]], lambda_mult=0.75, k=2)[1]
    assert (pick.relevance, pick.max_similarity) == (0.5, 1.0)
    assert pick.value == pytest.approx(0.75 * 0.5 - 0.25 * 1.0)
    assert type(pick.position) is int
    assert type(pick.value) is float


def test_inputs_are_not_changed() -> None:
    rng = np.random.default_rng(2)
    relevance, vectors = rng.random(9), rng.normal(size=(9, 4))
    before = relevance.copy(), vectors.copy()
    mmr_select(relevance, vectors, lambda_mult=0.5, k=9)
    assert np.array_equal(relevance, before[0])
    assert np.array_equal(vectors, before[1])


def test_k_beyond_the_candidates_ranks_them_all_and_none_gives_none() -> None:
    assert sorted(mmr_select([0.1, 0.2], [[1, 0], [0, 1]], lambda_mult=0.5, k=10)) == [0, 1]
    assert mmr_select([], [], lambda_mult=0.5, k=3) == []
    assert mmr_select_by_similarity([], np.empty((0, 0)), lambda_mult=0.5, k=3) == []


@pytest.mark.parametrize("lambda_mult", [-0.1, 1.1, float("nan")])
def test_lambda_out_of_range_is_refused(lambda_mult: float) -> None:
    with pytest.raises(ConfigError, match=r"in \[0, 1\]"):
        mmr_select([1.0], [[1.0]], lambda_mult=lambda_mult, k=1)


@pytest.mark.parametrize("k", [0, -1, 1.5, True])
def test_k_that_is_no_positive_whole_number_is_refused(k: object) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        mmr_select([1.0], [[1.0]], lambda_mult=0.5, k=k)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(ConfigError, match="finite"):
        mmr_select([bad, 1.0], [[1.0], [1.0]], lambda_mult=0.5, k=1)
    with pytest.raises(EmbeddingError, match=r"\[1\]"):
        mmr_select([1.0, 1.0], [[1.0], [bad]], lambda_mult=0.5, k=1)
    with pytest.raises(ConfigError, match="finite"):
        mmr_select_by_similarity([1.0, 1.0], [[1, bad], [bad, 1]], lambda_mult=0.5, k=1)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="shape"):
        mmr_select([1.0, 2.0], [[1.0]], lambda_mult=0.5, k=1)
    with pytest.raises(ConfigError, match="shape"):
        mmr_select_by_similarity([1.0, 2.0], [[1.0]], lambda_mult=0.5, k=1)


def test_lists_arrays_and_lists_of_arrays_give_the_same_picks() -> None:
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(50, 16)).astype(np.float32)
    relevance = rng.random(50)
    want = mmr_select(relevance, vectors, lambda_mult=0.5, k=20)
    for same in (vectors.tolist(), list(vectors), vectors.astype(np.float64), vectors.T.copy().T):
        assert mmr_select(relevance, same, lambda_mult=0.5, k=20) == want


def test_whole_numbers_and_huge_numbers_in_lists_are_read() -> None:
    assert mmr_select([1, 1, 1], [[2, 0], [3, 0], [0, 1]], lambda_mult=0.5, k=2) == [0, 2]
    huge = [[1e90, 0.0], [1e90, 0.0], [0.0, 1e90]]
    assert mmr_select([1, 1, 1], huge, lambda_mult=0.5, k=2) == [0, 2]
    large = np.array([[1e30, 0.0], [1e30, 0.0], [0.0, 1e30]], dtype=np.float32)
    assert mmr_select([1, 1, 1], large, lambda_mult=0.5, k=2) == [0, 2]


@pytest.mark.parametrize("ragged", [[[1.0, 2.0], [1.0]], [["a"], ["b"]]])
def test_rows_that_are_no_vectors_of_one_length_are_refused(ragged: list[list[object]]) -> None:
    with pytest.raises(ConfigError, match="array of numbers"):
        mmr_select([1.0, 1.0], ragged, lambda_mult=0.5, k=1)
