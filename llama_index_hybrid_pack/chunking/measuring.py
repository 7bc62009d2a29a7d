"""Counting tokens of pieces in batches, in time that grows with the text and nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence

from llama_index_hybrid_pack.chunking.pieces import Piece
from llama_index_hybrid_pack.text import Tokenizer

#: A text with more characters per token of the budget is not worth counting: it is too long.
CHARACTERS_PER_TOKEN = 8
#: Characters without white space that a tokenizer is given at once; a byte-pair encoder's cost
#: per character grows with the length of such a run.
MAX_RUN = 512

_BATCH = 1_024
_SURROGATE = re.compile("[\ud800-\udfff]")


class Measure:
    """Counts tokens of one document's pieces.

    Args:
        text: The document.
        tokenizer: What counts.
    """

    def __init__(self, text: str, tokenizer: Tokenizer) -> None:
        self.text = text
        self._tokenizer = tokenizer
        # Half a surrogate pair is no character, and tokenizers refuse it.
        self._countable = text if text.isascii() else _SURROGATE.sub("\ufffd", text)

    def count_pieces(self, pieces: Sequence[Piece], budget: int) -> None:
        """Set ``tokens`` of each piece; a piece that is surely over the budget keeps ``None``.

        Args:
            pieces: Pieces of the document.
            budget: Tokens that a chunk may hold.
        """
        text = self._countable
        counted = []
        slices = []
        for piece in pieces:
            content = text[piece.start : piece.end]
            if is_countable(content, budget):
                counted.append(piece)
                slices.append(content)
        for start in range(0, len(slices), _BATCH):
            counts = self._tokenizer.count_many(slices[start : start + _BATCH])
            for piece, count in zip(counted[start : start + _BATCH], counts, strict=True):
                piece.tokens = count

    def count_span(self, start: int, end: int, before: str = "") -> int:
        """Return the tokens of ``before`` and a range of the document behind it."""
        return self._tokenizer.count(_SURROGATE.sub("\ufffd", before) + self._countable[start:end])

    def count_texts(self, texts: Sequence[str], limit: int) -> list[int]:
        """Return the tokens of other texts; ``limit + 1`` for one that is surely longer.

        Args:
            texts: Texts that are not part of the document, for example metadata.
            limit: Tokens beyond which the exact number does not matter.

        Returns:
            One number per text.
        """
        counts = [limit + 1] * len(texts)
        places = [index for index, text in enumerate(texts) if is_countable(text, limit)]
        for first in range(0, len(places), _BATCH):
            batch = places[first : first + _BATCH]
            numbers = self._tokenizer.count_many(
                [_SURROGATE.sub("\ufffd", texts[index]) for index in batch]
            )
            for index, number in zip(batch, numbers, strict=True):
                counts[index] = number
        return counts


def is_countable(text: str, limit: int) -> bool:
    """Tell whether counting ``text`` is cheap and can give a number up to ``limit``."""
    if len(text) <= MAX_RUN:
        return True
    if len(text) > limit * CHARACTERS_PER_TOKEN:
        return False
    return max(map(len, text.split()), default=0) <= MAX_RUN
