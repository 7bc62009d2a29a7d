"""Maximal marginal relevance: relevant hits that do not repeat each other.

Carbonell and Goldstein, "The use of MMR, diversity-based reranking for reordering documents
and producing summaries", SIGIR 1998. Each step takes the candidate *i* with the largest

    value(i) = lambda * relevance(i) - (1 - lambda) * max over all picked j of similarity(i, j)

so a copy of *any* earlier pick is held back, not only a copy of the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llama_index_hybrid_pack.errors import ConfigError, EmbeddingError
from llama_index_hybrid_pack.scoring.vectors import Floats, as_matrix

# Two values nearer than this count as equal: dot products of equal vectors differ in the last
# bits with their place in the matrix, and a tie must not depend on that.
_TIE_EPSILONS = 16.0


class MMRPick(NamedTuple):
    """One step of the greedy choice."""

    position: int
    """Position of the candidate in the input, from 0."""
    value: float
    """Marginal value ``lambda * relevance - (1 - lambda) * max_similarity``."""
    relevance: float
    """The candidate's relevance, as given."""
    max_similarity: float
    """Largest similarity to an earlier pick; 0 for the first pick."""


def mmr_rank(
    relevance: ArrayLike,
    embeddings: ArrayLike | Sequence[NDArray[np.float32]],
    *,
    lambda_mult: float,
    k: int,
) -> list[MMRPick]:
    """Pick ``k`` candidates by maximal marginal relevance and say why each was picked.

    The first pick is always the most relevant candidate, also at ``lambda_mult=0``, where every
    first choice would be equally good. Ties go to the earlier position.

    Args:
        relevance: Shape ``(n,)``, finite; on the scale of a cosine, so that it can be weighed
            against the similarity.
        embeddings: Shape ``(n, d)``, finite, of any length; compared by cosine. An all-zero
            vector is similar to nothing. An array is much faster than nested lists.
        lambda_mult: 1 = relevance alone, 0 = diversity alone; in [0, 1].
        k: Number of picks, at least 1; all candidates are ranked when there are fewer.

    Returns:
        Picks in order; ``k`` or ``n`` of them, whichever is smaller.

    Raises:
        ConfigError: If an option is out of range or the shapes do not fit.
        EmbeddingError: If a vector is not finite.

    Complexity: O(k * n * d) time, O(n) memory beside the input.

    Example:
        >>> picks = mmr_rank([0.9, 0.9, 0.5], [[1, 0], [1, 0], [0, 1]], lambda_mult=0.5, k=2)
        >>> [(pick.position, pick.max_similarity) for pick in picks]
        [(0, 0.0), (2, 0.0)]
    """
    weights = _check(relevance, lambda_mult, k)
    if weights.size == 0:
        return []
    vectors = as_matrix(embeddings)
    if vectors.ndim != 2 or len(vectors) != weights.size:
        msg = (
            f"embeddings has shape {vectors.shape} and relevance {weights.shape}. They must be "
            "(n, d) and (n,)."
        )
        raise ConfigError(msg)
    squares = np.einsum("ij,ij->i", vectors, vectors)
    if vectors.dtype == np.float32 and not np.isfinite(squares).all():
        # Finite numbers may be too large for 32 bits.
        vectors = np.asarray(embeddings, dtype=np.float64)
        squares = np.einsum("ij,ij->i", vectors, vectors)
    if not np.isfinite(squares).all():
        bad = np.flatnonzero(~np.isfinite(squares))
        msg = f"The vectors at positions {bad[:5].tolist()} are not finite. Embed them again."
        raise EmbeddingError(msg)
    squares[squares == 0] = np.inf
    scale = 1.0 / np.sqrt(squares)

    def similarity_to(index: int, out: Floats) -> None:
        np.dot(vectors, vectors[index], out=out)
        np.multiply(out, scale, out=out)
        np.multiply(out, scale[index], out=out)

    return _greedy(weights, similarity_to, lambda_mult, k, vectors.dtype)


def mmr_select(
    relevance: ArrayLike,
    embeddings: ArrayLike | Sequence[NDArray[np.float32]],
    *,
    lambda_mult: float,
    k: int,
) -> list[int]:
    """Return the positions of ``k`` relevant and diverse candidates, best first.

    Args and errors are those of :func:`mmr_rank`.

    Returns:
        Positions in the order of picking.

    Example:
        >>> mmr_select([0.9, 0.9, 0.5], [[1, 0], [1, 0], [0, 1]], lambda_mult=0.5, k=2)
        [0, 2]
    """
    picks = mmr_rank(relevance, embeddings, lambda_mult=lambda_mult, k=k)
    return [pick.position for pick in picks]


def mmr_select_by_similarity(
    relevance: ArrayLike, similarity: ArrayLike, *, lambda_mult: float, k: int
) -> list[int]:
    """Return the positions of ``k`` relevant and diverse candidates from a similarity matrix.

    Use it where similarities come from elsewhere; with vectors, :func:`mmr_select` is faster.

    Args:
        relevance: Shape ``(n,)``, finite.
        similarity: Shape ``(n, n)``, finite; entry ``[i, j]`` compares candidates i and j.
        lambda_mult: 1 = relevance alone, 0 = diversity alone; in [0, 1].
        k: Number of picks, at least 1.

    Returns:
        Positions in the order of picking.

    Raises:
        ConfigError: If an option is out of range or the shapes do not fit.

    Example:
        >>> mmr_select_by_similarity([0.9, 0.8], [[1, 0.2], [0.2, 1]], lambda_mult=0.7, k=2)
        [0, 1]
    """
    weights = _check(relevance, lambda_mult, k)
    matrix = np.asarray(similarity, dtype=np.float64)
    if matrix.shape != (weights.size, weights.size) or not np.isfinite(matrix).all():
        msg = (
            f"similarity has shape {matrix.shape} for {weights.size} candidates. It must be "
            f"({weights.size}, {weights.size}) and finite."
        )
        raise ConfigError(msg)
    if weights.size == 0:
        return []

    def similarity_to(index: int, out: Floats) -> None:
        out[:] = matrix[:, index]

    picks = _greedy(weights, similarity_to, lambda_mult, k, matrix.dtype)
    return [pick.position for pick in picks]


def _check(relevance: ArrayLike, lambda_mult: float, k: int) -> NDArray[np.float64]:
    if not 0.0 <= lambda_mult <= 1.0:
        msg = f"lambda_mult is {lambda_mult!r}. It must be in [0, 1]: 1 = relevance alone."
        raise ConfigError(msg)
    if type(k) is not int or k < 1:
        msg = f"k is {k!r}. It must be a whole number of at least 1."
        raise ConfigError(msg)
    weights = np.asarray(relevance, dtype=np.float64)
    if weights.ndim != 1 or not np.isfinite(weights).all():
        msg = (
            f"relevance has shape {weights.shape}. It must be one finite number per candidate; "
            "leave out hits without a score, or give them one."
        )
        raise ConfigError(msg)
    return weights


def _greedy(
    relevance: NDArray[np.float64],
    similarity_to: Callable[[int, Floats], None],
    lambda_mult: float,
    k: int,
    dtype: np.dtype[np.float32] | np.dtype[np.float64],
) -> list[MMRPick]:
    n = relevance.size
    gain = (lambda_mult * relevance).astype(dtype)
    similarity, nearest, value = np.empty(n, dtype), np.full(n, -np.inf, dtype), gain.copy()
    penalty = dtype.type(1.0 - lambda_mult)
    tolerance = (
        _TIE_EPSILONS * float(np.finfo(dtype).eps) * max(1.0, float(np.abs(relevance).max()))
    )
    # Without an earlier pick there is no penalty; at lambda 0 relevance decides all the same.
    index = _first_best(relevance, tolerance)
    picked, values, nearests = [index], [value[index]], [0.0]
    for _ in range(min(k, n) - 1):
        similarity_to(index, similarity)
        np.maximum(nearest, similarity, out=nearest)
        gain[index] = -np.inf
        np.multiply(nearest, penalty, out=value)
        np.subtract(gain, value, out=value)
        index = _first_best(value, tolerance)
        picked.append(index)
        values.append(value[index])
        nearests.append(nearest[index])
    return [
        MMRPick(i, float(v), float(relevance[i]), float(s))
        for i, v, s in zip(picked, values, nearests, strict=True)
    ]


def _first_best(value: Floats, tolerance: float) -> int:
    best: np.floating = value[value.argmax()]
    return int((value >= best - tolerance).argmax())
