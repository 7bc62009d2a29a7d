"""A reranker's score together with the first stage's: what both know is kept.

Measured on three sets, a reranker that replaces a good hybrid's score lost .08 nDCG@10 on one and
the blend won .02 on two (docs/quality.md). Scores of two stages have different units, so each is
normalised over the candidates of one query before they are added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeGuard

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.scoring.normalization import normalize

#: How scores of one query are made comparable before they are added.
BlendNormalization = Literal["z_score", "min_max"]


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
        normalization: ``"z_score"`` (standard deviations above the lowest) or ``"min_max"`` (0
            to 1), both per query.

    Returns:
        One score of at least 0 per candidate, comparable within this query only; ``None`` where
        ``second`` is.

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
    completed = complete_scores(first)
    scored = {i: score for i, score in enumerate(second) if is_score(score)}
    before = normalize([completed[i] for i in scored], normalization)
    after = normalize(list(scored.values()), normalization)
    blended: list[float | None] = [None] * len(second)
    for i, old, new in zip(scored, before, after, strict=True):
        blended[i] = (1.0 - weight) * old + weight * new
    return blended


def complete_scores(scores: Sequence[float | None]) -> list[float]:
    """Return scores with the missing ones filled in, none of them better than a known one.

    Args:
        scores: In the order of the ranking; ``None`` or not finite = missing.

    Returns:
        One number each. Missing scores take the lowest known one; when none is known, the
        ranking itself gives ``n, n - 1, … 1``.

    Example:
        >>> complete_scores([0.9, None, 0.4])
        [0.9, 0.4, 0.4]
        >>> complete_scores([None, None])
        [2.0, 1.0]
    """
    known = [score for score in scores if is_score(score)]
    if not known:
        return [float(place) for place in range(len(scores), 0, -1)]
    lowest = min(known)
    return [float(score) if is_score(score) else lowest for score in scores]


def is_score(score: float | None) -> TypeGuard[float]:
    """Return whether there is a score and it is finite.

    Example:
        >>> is_score(0), is_score(None), is_score(float("nan"))
        (True, False, False)
    """
    return score is not None and math.isfinite(score)
