"""Each text is scored once, and each score goes back to every candidate with that text.

Rerank services answer sorted by score with an index into the list that was *sent*: without
repeated and blank texts. Pairing by position, or indexing the list before that, gives one
document another's score.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llama_index_hybrid_pack.errors import RerankError


@dataclass(frozen=True)
class UniqueTexts:
    """The texts to send, and where each candidate's text is among them."""

    texts: list[str]
    """Distinct texts that are not blank, in order of first appearance."""
    positions: list[int | None]
    """For each candidate its text's position in ``texts``; ``None`` where the text is blank."""


def unique_texts(texts: Iterable[str]) -> UniqueTexts:
    """Return the distinct, non-blank texts and each candidate's place among them.

    Args:
        texts: One text per candidate.

    Returns:
        What to send, and how to find the way back.

    Example:
        >>> unique_texts(["b", "a", " ", "b"])
        UniqueTexts(texts=['b', 'a'], positions=[0, 1, None, 0])
    """
    places: dict[str, int] = {}
    positions = [places.setdefault(text, len(places)) if text.strip() else None for text in texts]
    return UniqueTexts(list(places), positions)


def scatter_scores(
    replies: Iterable[tuple[int, float]], positions: Sequence[int | None]
) -> list[float | None]:
    """Give each candidate the score of its text, whatever the order of the answer.

    Args:
        replies: Pairs of an index into the texts that were sent, and their score; in any order.
        positions: :attr:`UniqueTexts.positions` of the list that was sent.

    Returns:
        One score per candidate; ``None`` where the text was blank, was left out of the answer, or
        got a score that is not finite.

    Raises:
        RerankError: If an index is out of range or comes twice: then no score can be trusted.

    Example:
        >>> scatter_scores([(1, 0.9), (0, 0.1)], [0, 1, None, 0])
        [0.1, 0.9, None, 0.1]
    """
    n = 1 + max((place for place in positions if place is not None), default=-1)
    scores: dict[int, float] = {}
    for index, score in replies:
        if type(index) is not int or not 0 <= index < n:
            msg = f"The reranker answered for text {index!r}, but the texts sent are 0 to {n - 1}."
            raise RerankError(msg)
        if index in scores:
            msg = f"The reranker answered twice for text {index}."
            raise RerankError(msg)
        scores[index] = float(score)
    found = [None if place is None else scores.get(place) for place in positions]
    return [score if score is not None and math.isfinite(score) else None for score in found]
