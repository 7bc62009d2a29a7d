"""How sure a mean or a difference is: bootstrap intervals, paired tests, Holm's correction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llama_index_hybrid_pack.errors import EvaluationError

# Random numbers held at once: 4 million = 16 MB.
_BLOCK = 4_000_000
_TOLERANCE = 1e-12


def bootstrap_intervals(
    values: ArrayLike, *, confidence: float = 0.95, n_resamples: int = 10_000, seed: int = 0
) -> NDArray[np.float64]:
    """Return percentile bootstrap intervals of means.

    Questions are drawn again with replacement, as if another golden set of the same size had been
    written; the interval holds the middle share of the resampled means. Use it for any value per
    question, differences of two systems included.

    Args:
        values: Shape ``(n,)``, or ``(n, m)`` for m metrics of the same n questions, finite.
        confidence: Share of the resampled means inside, above 0 and below 1.
        n_resamples: Number of resamples; 10,000 keep the ends steady to about a hundredth of
            the interval's width.
        seed: The same seed gives the same interval.

    Returns:
        Shape ``(2,)`` or ``(2, m)``: lower and upper ends. NaN for no values; no width for one.

    Raises:
        EvaluationError: If values are not finite or an option is out of range.

    References:
        Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13.

    Example:
        >>> bootstrap_intervals([1.0, 1.0, 1.0]).tolist()
        [1.0, 1.0]
    """
    table = _finite(values)
    if not 0.0 < confidence < 1.0:
        msg = f"confidence is {confidence!r}. It is between 0 and 1, for example 0.95."
        raise EvaluationError(msg)
    n = len(table)
    if n == 0:
        return np.full((2, *table.shape[1:]), np.nan)
    flat = table.reshape(n, -1)
    # Around the first row, so that equal values give exactly themselves.
    shifted = flat - flat[0]
    rng = np.random.default_rng(seed)
    means = np.concatenate(
        [
            _counts(rng.integers(0, n, (rows, n), dtype=np.int32), n) @ shifted / n
            for rows in _blocks(_positive("n_resamples", n_resamples), n)
        ]
    )
    tail = (1.0 - confidence) / 2.0
    ends: NDArray[np.float64] = np.quantile(means, [tail, 1.0 - tail], axis=0) + flat[0]
    return ends.reshape(2, *table.shape[1:])


def paired_test(
    first: ArrayLike, second: ArrayLike, *, n_permutations: int = 20_000, seed: int = 0
) -> float:
    """Return the p-value of a paired randomisation (sign-flip) test, two-sided.

    Use it to compare two systems on the same questions. Under the null hypothesis either system
    could have given either value of a question, so the sign of each difference is a coin flip.

    Args:
        first: One value per question, shape ``(n,)``.
        second: Values of the other system for the same questions in the same order.
        n_permutations: Number of random flips; with few differences all flips are counted
            instead, which is exact.
        seed: The same seed gives the same p-value.

    Returns:
        Share of flips whose mean difference is at least as large as the one observed, in (0, 1];
        1 when no question differs.

    Raises:
        EvaluationError: If the lengths differ or values are not finite.

    References:
        Smucker, Allan and Carterette, "A comparison of statistical significance tests for
        information retrieval evaluation", CIKM 2007.

    Example:
        >>> paired_test([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
        0.25
    """
    a, b = _finite(first), _finite(second)
    if a.ndim != 1 or a.shape != b.shape:
        msg = f"A paired test needs two equally long lists, these have shapes {a.shape}, {b.shape}."
        raise EvaluationError(msg)
    differences = b - a
    # Those of 0 stay 0 whatever their sign.
    differences = differences[np.abs(differences) > _TOLERANCE]
    n = len(differences)
    if n == 0:
        return 1.0
    n_permutations = _positive("n_permutations", n_permutations)
    observed = abs(differences.sum()) - _TOLERANCE * np.abs(differences).sum()
    if 2**n <= n_permutations:
        flips = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        return float(np.mean(np.abs((2.0 * flips - 1.0) @ differences) >= observed))
    rng = np.random.default_rng(seed)
    extreme = 0
    for rows in _blocks(n_permutations, n):
        bits = np.unpackbits(rng.integers(0, 256, (rows, -(-n // 8)), dtype=np.uint8), axis=1)
        sums = 2.0 * (bits[:, :n] @ differences) - differences.sum()
        extreme += int(np.count_nonzero(np.abs(sums) >= observed))
    # The observed order of signs is one of the flips.
    return (extreme + 1) / (n_permutations + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for the number of comparisons by Holm's step-down method.

    Args:
        p_values: One per comparison, each in [0, 1].

    Returns:
        Adjusted p-values in the given order, at most 1: compare them with the level as they are.

    Raises:
        EvaluationError: If a p-value is outside [0, 1].

    References:
        Holm, "A simple sequentially rejective multiple test procedure", 1979.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    if any(not 0.0 <= p <= 1.0 for p in p_values):
        msg = f"p-values are between 0 and 1, these are {list(p_values)}."
        raise EvaluationError(msg)
    count = len(p_values)
    adjusted = [0.0] * count
    highest = 0.0
    for place, i in enumerate(sorted(range(count), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (count - place) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def _finite(values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        msg = "A value is NaN or infinite. Give one finite number per question."
        raise EvaluationError(msg)
    return array


def _positive(name: str, value: int) -> int:
    if value < 1:
        msg = f"{name} is {value!r}. Give a whole number of at least 1."
        raise EvaluationError(msg)
    return value


def _blocks(rows: int, width: int) -> Iterator[int]:
    """Cut rows into blocks that fit into memory."""
    size = max(1, _BLOCK // max(1, width))
    for start in range(0, rows, size):
        yield min(size, rows - start)


def _counts(drawn: NDArray[np.int32], n: int) -> NDArray[np.float64]:
    """Return how often each row drew each of n questions."""
    rows = len(drawn)
    flat = (drawn + (np.arange(rows, dtype=np.int64) * n)[:, None]).ravel()
    return np.bincount(flat, minlength=rows * n).reshape(rows, n).astype(np.float64)
