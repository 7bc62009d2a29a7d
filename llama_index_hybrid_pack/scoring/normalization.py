"""Makes the scores of one ranked list comparable with those of another list."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

from llama_index_hybrid_pack.errors import ConfigError

Normalization = Literal["min_max", "z_score", "dist_based", "theoretical", "none"]
#: Every method that :func:`normalize` knows.
NORMALIZATIONS: tuple[str, ...] = get_args(Normalization)

# Scores that differ by less are equal: rounding alone would part them into best and worst.
_NOISE = 1e-12
# Squares of scores beyond these leave a float's range, or lose their digits.
_SQUARABLE = (1e-100, 1e100)


def normalize(
    scores: Sequence[float | None], method: Normalization, *, lower_bound: float | None = None
) -> list[float]:
    """Normalise the scores of one list, whatever their sign and scale.

    Use it before scores of different lists are added. A hit that a list did not find counts as 0
    there, so no method but ``"none"`` gives less than 0. All but ``"none"`` share these cases:

    - one hit, or equal scores: 1.0 each; a lone hit is never worth nothing;
    - a missing score counts as the lowest of its list, and the hit is kept;
    - no score at all: 1.0 each;
    - no hits: an empty list.

    ===============  ===========  ============  ==========================================
    method           best hit     worst hit     worst hit against one that was not found
    ===============  ===========  ============  ==========================================
    ``min_max``      1            0             the same: felt in lists of two, three hits
    ``z_score``      above 0      0             the same
    ``dist_based``   above 0.5    at least 0    better, but for an outlier far below
    ``theoretical``  1            at least 0    better, but for a score at the lower bound
    ``none``         as it is     as it is      as the scores say
    ===============  ===========  ============  ==========================================

    Args:
        scores: Scores of one list in any order; ``None`` = the hit has no score.
        method: ``"min_max"``: place between the worst and the best score. ``"z_score"``: distance
            from the worst score in standard deviations. ``"dist_based"``: place between the mean
            minus (0) and plus (1) 3 standard deviations. A better hit is above 1: BM25's best
            are, and cutting them off at 1 lost .04 nDCG@10 on squad2. ``"theoretical"``: place
            between ``lower_bound`` and the best score. ``"none"``: the scores as they are,
            missing ones as 0.
        lower_bound: For ``"theoretical"``: the lowest score there can be, for example 0 for BM25
            and -1 for the cosine.

    Returns:
        One float per score, in the given order.

    Raises:
        ConfigError: If the method is unknown, a score is not finite, or the lower bound is
            missing.

    References:
        min-max and z-score: Montague and Aslam, "Relevance score normalization for metasearch",
        CIKM 2001. dist_based: Mazzeschi, "Distribution-based score fusion", 2023, as in
        LlamaIndex's ``dist_based_score``. Theoretical min-max: Bruch, Gai and Ingber, "An
        analysis of fusion functions for hybrid retrieval", TOIS 2023.

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
    if not all(map(math.isfinite, known)):
        msg = (
            f"The scores {known} are not all finite, and NaN or infinity cannot be placed among "
            "others. Give None for a hit without a score."
        )
        raise ConfigError(msg)
    if method == "none":
        return [0.0 if score is None else float(score) for score in scores]
    lowest = min(known, default=0.0)
    filled = [lowest if score is None else float(score) for score in scores]
    if method == "theoretical":
        return _theoretical(filled, lower_bound)
    highest = max(filled, default=0.0)
    if highest - lowest <= _NOISE * max(abs(lowest), abs(highest)):
        return [1.0] * len(filled)
    if method == "min_max":
        return _placed(filled, lowest, highest)
    return _standardised(filled, lowest, highest, around_mean=method == "dist_based")


def _standardised(
    scores: list[float], lowest: float, highest: float, *, around_mean: bool
) -> list[float]:
    """Scores in standard deviations above the lowest, or around the mean."""
    largest = max(abs(lowest), abs(highest))
    if not _SQUARABLE[0] < largest < _SQUARABLE[1]:
        # Neither method depends on the unit, and a power of two scales exactly.
        exponent = -math.frexp(largest)[1]
        scores = [math.ldexp(score, exponent) for score in scores]
        lowest = math.ldexp(lowest, exponent)
    mean = math.fsum(scores) / len(scores)
    offsets = [score - mean for score in scores]
    deviation = math.sqrt(math.fsum([offset * offset for offset in offsets]) / len(scores))
    if not around_mean:
        return [(score - lowest) / deviation for score in scores]
    reach = 6.0 * deviation
    return [max(0.0, 0.5 + offset / reach) for offset in offsets]


def _theoretical(scores: list[float], lower_bound: float | None) -> list[float]:
    if lower_bound is None or not math.isfinite(lower_bound):
        msg = (
            "Theoretical normalisation needs the lowest score there can be: 0 for BM25, -1 for "
            f"the cosine. lower_bound is {lower_bound!r}: give it, or choose 'min_max'."
        )
        raise ConfigError(msg)
    highest = max(scores, default=lower_bound)
    if highest <= lower_bound:
        return [1.0] * len(scores)
    return _placed(scores, lower_bound, highest)


def _placed(scores: list[float], low: float, high: float) -> list[float]:
    """Place of each score between two bounds, 0 below the lower one."""
    if math.isinf(high - low):
        return _placed([score / 2 for score in scores], low / 2, high / 2)
    width = high - low
    return [(score - low) / width if score > low else 0.0 for score in scores]
