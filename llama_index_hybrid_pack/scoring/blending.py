"""A reranker's score together with the first stage's: what both know is kept.

Measured on three sets, a reranker that replaces a good hybrid's score lost .08 nDCG@10 on one and
the blend won .02 on two (docs/quality.md). Scores of two stages have different units, so each is
normalised over the candidates of one query before they are added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeGuard

import numpy as np
from numpy.typing import NDArray

from llama_index_hybrid_pack.errors import ConfigError

#: How scores of one query are made comparable before they are added.
BlendNormalization = Literal["z_score", "min_max"]


def z_scores(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how many standard deviations each value lies above the mean.

    Args:
        values: Shape ``(n,)``, finite.

    Returns:
        Shape ``(n,)``; all 0 where the values are equal or there is only one.

    Example:
        >>> z_scores(np.array([1.0, 3.0])).tolist()
        [-1.0, 1.0]
    """
    return _scaled(values, values.mean() if values.size else 0.0, values.std())


def min_max(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each value's place between the smallest (0) and the largest (1).

    Args:
        values: Shape ``(n,)``, finite.

    Returns:
        Shape ``(n,)``, in [0, 1]; all 0 where the values are equal or there is only one.

    Example:
        >>> min_max(np.array([2.0, 3.0, 4.0])).tolist()
        [0.0, 0.5, 1.0]
    """
    return _scaled(values, values.min(initial=np.inf), np.ptp(values) if values.size else 0.0)


def blend_scores(
    first: Sequence[float | None],
    second: Sequence[float | None],
    *,
    weight: float,
    normalization: BlendNormalization = "z_score",
) -> list[float | None]:
    """Return ``(1 - weight) * normalised first + weight * normalised second`` for each candidate.

    Args:
        first: Scores of the stage before, in the order of its ranking. A missing one counts as
            the lowest that is there; when all are missing, the ranking itself counts.
        second: Scores of the reranker. A candidate without one gets no blended score either.
        weight: Share of ``second``, in [0, 1].
        normalization: ``"z_score"`` or ``"min_max"``, both per query.

    Returns:
        One score per candidate, comparable within this query only; ``None`` where ``second`` is.

    Raises:
        ConfigError: If the weight is out of range or the lengths differ.

    Example:
        >>> blend_scores([3.0, 1.0], [0.2, 0.6], weight=0.5, normalization="min_max")
        [0.5, 0.5]
    """
    if not 0.0 <= weight <= 1.0:
        msg = f"weight is {weight!r}. It must be in [0, 1]: 1 = the second stage alone."
        raise ConfigError(msg)
    if len(first) != len(second):
        msg = f"There are {len(first)} first and {len(second)} second scores. Give one each."
        raise ConfigError(msg)
    normalise = {"z_score": z_scores, "min_max": min_max}.get(normalization)
    if normalise is None:
        msg = f"normalization is {normalization!r}. Choose 'z_score' or 'min_max'."
        raise ConfigError(msg)
    scored = [i for i, score in enumerate(second) if is_score(score)]
    before = complete_scores(first)[scored]
    after = np.array([second[i] for i in scored], dtype=np.float64)
    total = (1.0 - weight) * normalise(before) + weight * normalise(after)
    blended: list[float | None] = [None] * len(second)
    for i, score in zip(scored, total.tolist(), strict=True):
        blended[i] = score
    return blended


def complete_scores(scores: Sequence[float | None]) -> NDArray[np.float64]:
    """Return scores with the missing ones filled in, none of them better than a known one.

    Args:
        scores: In the order of the ranking; ``None`` or not finite = missing.

    Returns:
        Shape ``(n,)``. Missing scores take the lowest known one; when none is known, the ranking
        itself gives ``n, n - 1, … 1``.

    Example:
        >>> complete_scores([0.9, None, 0.4]).tolist()
        [0.9, 0.4, 0.4]
        >>> complete_scores([None, None]).tolist()
        [2.0, 1.0]
    """
    known = [score for score in scores if is_score(score)]
    if not known:
        return np.arange(len(scores), 0, -1, dtype=np.float64)
    lowest = min(known)
    return np.array([score if is_score(score) else lowest for score in scores], dtype=np.float64)


def is_score(score: float | None) -> TypeGuard[float]:
    """Return whether there is a score and it is finite.

    Example:
        >>> is_score(0), is_score(None), is_score(float("nan"))
        (True, False, False)
    """
    return score is not None and math.isfinite(score)


def _scaled(values: NDArray[np.float64], offset: float, unit: float) -> NDArray[np.float64]:
    # Equal values may differ in the last bits; dividing by that would make noise of size 1.
    largest = float(np.abs(values).max(initial=0.0))
    if unit <= 1e-12 * largest or unit == 0.0:
        return np.zeros_like(values)
    scaled: NDArray[np.float64] = (values - offset) / unit
    return scaled
