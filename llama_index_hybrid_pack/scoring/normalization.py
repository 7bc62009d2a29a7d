"""Makes the scores of one ranked list comparable with those of another list."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

from llama_index_hybrid_pack.errors import ConfigError

Normalization = Literal["min_max", "z_score", "dist_based", "theoretical", "none"]
#: Every method that :func:`normalize` knows.
NORMALIZATIONS: tuple[str, ...] = get_args(Normalization)


def normalize(
    scores: Sequence[float | None], method: Normalization, *, lower_bound: float | None = None
) -> list[float]:
    """Normalise the scores of one list, whatever their sign and scale.

    A hit that another list did not find counts as 0 there, so every method gives at least 0.
    Special cases hold for all methods but ``"none"``: a lone hit and equal scores give 1.0; a
    missing score counts as the lowest score of its list, and 1.0 when no hit has a score.

    Args:
        scores: Scores of one list in any order; ``None`` = the hit has no score.
        method: ``"min_max"``: worst 0, best 1. ``"z_score"``: distance from the worst hit in
            standard deviations, 0 and up. ``"dist_based"``: mean ± 3 standard deviations
            mapped to 0 and 1, clipped, so that a list's worst hit is still better than none.
            ``"theoretical"``: ``lower_bound`` 0, best 1. ``"none"``: the scores as they are,
            missing ones as 0.
        lower_bound: For ``"theoretical"``: the lowest score there can be, for example 0 for BM25
            and -1 for the cosine.

    Returns:
        One float per score, in the given order.

    Raises:
        ConfigError: If the method is unknown, a score is NaN, or the lower bound is missing.

    References:
        min-max and z-score: Montague and Aslam, "Relevance score normalization for metasearch",
        CIKM 2001. Theoretical min-max: Bruch, Gai and Ingber, "An analysis of fusion functions
        for hybrid retrieval", TOIS 2023.

    Example:
        >>> normalize([12.0, 3.0, 7.5], "min_max")
        [1.0, 0.0, 0.5]
        >>> normalize([-4.2], "min_max")
        [1.0]
    """
    if method not in NORMALIZATIONS:
        msg = f"There is no normalisation {method!r}. Choose one of {list(NORMALIZATIONS)}."
        raise ConfigError(msg)
    known = [float(score) for score in scores if score is not None]
    if any(math.isnan(score) for score in known):
        msg = "A score is NaN, which has no place in an order. Leave the hit out or give None."
        raise ConfigError(msg)
    if method == "none":
        return [0.0 if score is None else float(score) for score in scores]
    lowest = min(known, default=0.0)
    filled = [lowest if score is None else float(score) for score in scores]
    if method == "theoretical":
        return _theoretical(filled, lower_bound)
    spread = _spread(filled)
    if spread is None:
        return [1.0] * len(filled)
    mean, deviation = spread
    if method == "z_score":
        return [(score - lowest) / deviation for score in filled]
    if method == "dist_based":
        return [min(1.0, max(0.0, 0.5 + (score - mean) / (6.0 * deviation))) for score in filled]
    width = max(filled) - lowest
    return [(score - lowest) / width for score in filled]


def _spread(scores: list[float]) -> tuple[float, float] | None:
    """Mean and standard deviation, or ``None`` for none, one or equal scores."""
    if not scores or min(scores) == max(scores):
        return None
    mean = math.fsum(scores) / len(scores)
    deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / len(scores))
    # Scores may differ by less than a float's square can hold.
    return (mean, deviation) if deviation else None


def _theoretical(scores: list[float], lower_bound: float | None) -> list[float]:
    if lower_bound is None:
        msg = (
            "Theoretical normalisation needs the lowest score there can be: 0 for BM25, -1 for "
            "the cosine. Give lower_bound, or choose 'min_max'."
        )
        raise ConfigError(msg)
    highest = max(scores)
    if highest <= lower_bound:
        return [1.0] * len(scores)
    width = highest - lower_bound
    return [max(0.0, score - lower_bound) / width for score in scores]
