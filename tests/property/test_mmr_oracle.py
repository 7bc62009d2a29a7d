"""The vectorised choice equals a naive one that is written straight from the formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_index_hybrid_pack.scoring.mmr import mmr_rank, mmr_select, mmr_select_by_similarity

TIE = 1e-9


def cosine(a: list[float], b: list[float]) -> float:
    lengths = math.sqrt(math.fsum(x * x for x in a)) * math.sqrt(math.fsum(x * x for x in b))
    return math.fsum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 0.0


def oracle(
    relevance: list[float], similarity: list[list[float]], lambda_mult: float, k: int
) -> list[int]:
    picked: list[int] = []
    rest = list(range(len(relevance)))
    while rest and len(picked) < k:
        values = [
            lambda_mult * relevance[i] - (1 - lambda_mult) * max(similarity[i][j] for j in picked)
            if picked
            else relevance[i]
            for i in rest
        ]
        best = max(values)
        choice = next(i for i, value in zip(rest, values, strict=True) if value >= best - TIE)
        picked.append(choice)
        rest.remove(choice)
    return picked


# Hundredths, so that two values are either equal or clearly apart: ties are part of the test.
hundredth = st.integers(-100, 100).map(lambda x: x / 100)
lambdas = st.sampled_from([0.0, 0.25, 0.5, 0.7, 1.0])


@st.composite
def similarity_case(draw: st.DrawFn) -> tuple[list[float], list[list[float]], float, int]:
    n = draw(st.integers(1, 12))
    relevance = draw(st.lists(hundredth, min_size=n, max_size=n))
    upper = draw(st.lists(hundredth, min_size=n * n, max_size=n * n))
    matrix = [
        [1.0 if i == j else upper[min(i, j) * n + max(i, j)] for j in range(n)] for i in range(n)
    ]
    return relevance, matrix, draw(lambdas), draw(st.integers(1, n + 2))


@given(similarity_case())
def test_equal_to_brute_force_on_any_similarity_matrix(
    case: tuple[list[float], list[list[float]], float, int],
) -> None:
    relevance, matrix, lambda_mult, k = case
    got = mmr_select_by_similarity(relevance, matrix, lambda_mult=lambda_mult, k=k)
    assert got == oracle(relevance, matrix, lambda_mult, k)


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 40),
    dimension=st.integers(1, 24),
    lambda_mult=st.floats(0, 1),
    copies=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_equal_to_brute_force_on_random_vectors(
    seed: int, n: int, dimension: int, lambda_mult: float, copies: bool, dtype: type
) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, dimension)).astype(dtype)
    if copies:
        vectors[n // 2 :] = vectors[: n - n // 2]
    relevance = rng.random(n)
    rows = [[float(x) for x in row] for row in vectors]
    similarity = [[cosine(a, b) for b in rows] for a in rows]
    picks = mmr_rank(relevance, vectors, lambda_mult=lambda_mult, k=n)
    # Each pick is a best one given the picks before it: no near-tie can make this test fail.
    picked: list[int] = []
    for pick in picks:
        values = {
            i: lambda_mult * relevance[i]
            - (1 - lambda_mult) * max(similarity[i][j] for j in picked)
            if picked
            else relevance[i]
            for i in range(n)
            if i not in picked
        }
        assert values[pick.position] >= max(values.values()) - 1e-5
        if picked:
            assert pick.value == pytest.approx(values[pick.position], abs=1e-5)
        picked.append(pick.position)
    assert sorted(picked) == list(range(n))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("lambda_mult", [0.0, 0.3, 0.5, 0.9, 1.0])
def test_equal_to_brute_force_position_by_position_at_full_size(
    seed: int, lambda_mult: float
) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(200, 64)).astype(np.float32) + rng.normal(size=64)
    relevance = rng.random(200)
    wide = vectors.astype(np.float64)
    unit = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    got = mmr_select(relevance, vectors, lambda_mult=lambda_mult, k=10)
    assert got == oracle(list(relevance), (unit @ unit.T).tolist(), lambda_mult, 10)
