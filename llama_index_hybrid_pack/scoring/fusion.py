"""One ranking from several: reciprocal ranks, or a convex combination of normalised scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from operator import itemgetter

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.scoring.normalization import Normalization, normalize

#: Constant of reciprocal rank fusion in the paper.
RRF_K = 60.0

# What one list adds to the score of each of its ids.
_Part = dict[str, float]


def check_weights(weights: Sequence[float] | None, count: int) -> list[float]:
    """Return one usable weight per list.

    Args:
        weights: One number per list, finite, at least 0, not all 0; ``None`` = all 1.
        count: Number of lists.

    Returns:
        The weights as floats.

    Raises:
        ConfigError: If there are too few or too many, or one cannot be used.

    Example:
        >>> check_weights(None, 2)
        [1.0, 1.0]
    """
    if weights is None:
        return [1.0] * count
    if len(weights) != count:
        msg = (
            f"{len(weights)} weights were given for {count} lists: {list(weights)}. Give one each."
        )
        raise ConfigError(msg)
    if not all(is_number(weight) and weight >= 0 for weight in weights):
        msg = f"Weights are finite and at least 0, these are {list(weights)}. 0 leaves a list out."
        raise ConfigError(msg)
    if weights and not any(weights):
        msg = f"All weights are 0 ({list(weights)}), so nothing would be found. Give one above 0."
        raise ConfigError(msg)
    return [float(weight) for weight in weights]


def check_rrf_k(k: float) -> float:
    """Return a usable constant of reciprocal rank fusion.

    Args:
        k: Finite, at least 0.

    Returns:
        The constant as a float.

    Raises:
        ConfigError: If it is anything else.

    Example:
        >>> check_rrf_k(60)
        60.0
    """
    if not is_number(k) or k < 0:
        msg = (
            f"k is {k!r}. Reciprocal rank fusion takes a finite k of at least 0; the paper's is 60."
        )
        raise ConfigError(msg)
    return float(k)


def is_number(value: object) -> bool:
    """Return whether a value is a finite number; ``True`` and ``"1"`` are none.

    Example:
        >>> is_number(0), is_number(float("nan")), is_number(True)
        (True, False, False)
    """
    if isinstance(value, bool):
        return False
    return isinstance(value, Real) and math.isfinite(float(value))


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[str]],
    *,
    weights: Sequence[float] | None = None,
    k: float = RRF_K,
) -> list[tuple[str, float]]:
    """Fuse by ranks: each list adds ``weight / (k + rank)``, ranks counted from 1.

    Use it when scores are missing or mean different things; it needs no tuning.

    Args:
        rankings: Ids per list, best first. The given order is the rank; an id that stands in a
            list more than once counts at its best rank.
        weights: One per list; 0 = the list is not consulted. ``None`` = all 1.
        k: At least 0; the larger, the less the first ranks stand out.

    Returns:
        Ids with fused scores (scale ``rank``), score descending, then id.

    Raises:
        ConfigError: If the weights or ``k`` cannot be used.

    References:
        Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms Condorcet and
        individual rank learning methods", SIGIR 2009.

    Example:
        >>> fused = reciprocal_rank_fusion([["d1", "d2", "d4"], ["d2", "d4", "d1"]])
        >>> [(name, round(score, 4)) for name, score in fused]
        [('d2', 0.0325), ('d1', 0.0323), ('d4', 0.032)]
    """
    constant = check_rrf_k(k)
    parts: list[_Part] = []
    for ids, weight in zip(rankings, check_weights(weights, len(rankings)), strict=True):
        if weight:
            distinct = dict.fromkeys(ids)
            places = range(1, len(distinct) + 1)
            parts.append(
                {n: weight / (constant + r) for n, r in zip(distinct, places, strict=True)}
            )
    return _summed(parts)


def weighted_fusion(
    rankings: Sequence[Sequence[tuple[str, float | None]]],
    *,
    weights: Sequence[float] | None = None,
    normalization: Normalization = "min_max",
    lower_bounds: Sequence[float | None] | None = None,
) -> list[tuple[str, float]]:
    """Fuse by scores: a convex combination of each list's normalised scores.

    Use it when every list has scores; it keeps how much better a hit is, which ranks forget.

    Args:
        rankings: Ids with scores per list, best first; ``None`` = no score. An id that stands in
            a list more than once counts with its first score. The order counts only where a list
            has no scores at all: its ranks stand in for them, evenly spaced.
        weights: One per list, brought to a sum of 1; 0 = not consulted. ``None`` = all equal.
        normalization: See :func:`~llama_index_hybrid_pack.scoring.normalization.normalize`.
        lower_bounds: One per list, for ``normalization="theoretical"``.

    Returns:
        Ids with fused scores (scale ``fused``; in [0, 1] for ``min_max`` and ``theoretical``),
        score descending, then id.

    Raises:
        ConfigError: If weights, normalisation or bounds cannot be used.

    Example:
        >>> bm25, dense = [("a", 9.0), ("b", 3.0)], [("b", 3.0), ("c", 2.0), ("a", 1.0)]
        >>> weighted_fusion([bm25, dense])
        [('a', 0.5), ('b', 0.5), ('c', 0.25)]
    """
    shares = check_weights(weights, len(rankings))
    bounds = [None] * len(rankings) if lower_bounds is None else list(lower_bounds)
    if len(bounds) != len(rankings):
        msg = f"{len(bounds)} lower bounds were given for {len(rankings)} lists. Give one each."
        raise ConfigError(msg)
    total = math.fsum(shares)
    parts: list[_Part] = []
    for hits, share, bound in zip(rankings, shares, bounds, strict=True):
        if not share:
            continue
        first: dict[str, float | None] = dict(hits)
        if len(first) < len(hits):
            first = dict(reversed(hits))
            first = {name: first[name] for name, _ in hits}
        weight = share / total
        values = _normalized(first, normalization, bound)
        parts.append({n: weight * value for n, value in zip(first, values, strict=True)})
    return _summed(parts)


def _normalized(
    scores: dict[str, float | None], normalization: Normalization, bound: float | None
) -> list[float]:
    if normalization == "none" or any(score is not None for score in scores.values()):
        return normalize(list(scores.values()), normalization, lower_bound=bound)
    ranks = [-float(rank) for rank in range(len(scores))]
    return normalize(ranks, normalization, lower_bound=-float(len(scores)))


def _summed(parts: Sequence[_Part]) -> list[tuple[str, float]]:
    """Sum so that the order of the lists changes nothing, not even a tie."""
    fused = dict(parts[0]) if parts else {}
    if len(parts) <= 2:
        for name, value in (parts[1] if len(parts) == 2 else {}).items():
            fused[name] = fused.get(name, 0.0) + value
        return by_score(fused.items())
    # From three addends on, only an exact sum is the same in any order.
    every: dict[str, list[float]] = {}
    for part in parts:
        for name, value in part.items():
            every.setdefault(name, []).append(value)
    return by_score((name, math.fsum(values)) for name, values in every.items())


def by_score(scored: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """Sort by score descending, then id: the one order of this package.

    Args:
        scored: Ids with scores.

    Returns:
        The pairs in order.

    Example:
        >>> by_score([("b", 1.0), ("a", 1.0), ("c", 2.0)])
        [('c', 2.0), ('a', 1.0), ('b', 1.0)]
    """
    pairs = sorted(scored, key=itemgetter(0))
    pairs.sort(key=itemgetter(1), reverse=True)  # stable: equal scores stay in the order of ids
    return pairs
