"""Pieces of a document: what a chunk is put together from, and how a piece too big is cut.

A block is one piece while it fits. Cut, it gives the pieces that its kind suggests: a list its
items, a table its rows, code its paragraphs and lines, text its sentences, and below that words,
then runs of characters. Nothing is repeated and nothing is left out: the pieces of a block lie
side by side and cover it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from itertools import pairwise

from llama_index_hybrid_pack.chunking.blocks import Block, BlockKind
from llama_index_hybrid_pack.chunking.plain_text import (
    character_cuts,
    line_cuts,
    paragraph_cuts,
    sentence_cuts,
    trimmed_end,
    trimmed_start,
    word_cuts,
)
from llama_index_hybrid_pack.chunking.table_header import TableHeader

#: White space longer than this is not counted with a piece: a chunk ends there instead.
MAX_GAP = 64


class Grain(IntEnum):
    """How fine a piece is; each step is tried only when the one before is too coarse."""

    BLOCK = 0
    PARAGRAPH = 1
    SENTENCE = 2
    LINE = 3
    WORDS = 4
    WORD = 5
    RUN = 6
    SHORT_RUN = 7
    CLUSTER = 8
    CHARACTER = 9


_Cutter = Callable[[str, int, int], Sequence[int]]


def _between_characters(_text: str, start: int, end: int) -> Sequence[int]:
    return range(start + 1, end)


_CUTTERS: dict[Grain, _Cutter] = {
    Grain.PARAGRAPH: paragraph_cuts,
    Grain.SENTENCE: sentence_cuts,
    Grain.LINE: line_cuts,
    Grain.WORDS: partial(word_cuts, width=48),
    Grain.WORD: partial(word_cuts, width=0),
    Grain.RUN: partial(character_cuts, width=64),
    Grain.SHORT_RUN: partial(character_cuts, width=8),
    Grain.CLUSTER: partial(character_cuts, width=1),
    Grain.CHARACTER: _between_characters,
}
_BARE = frozenset({BlockKind.HEADING, BlockKind.THEMATIC_BREAK})
#: Grains that mean nothing for a kind of block.
_SKIPPED: dict[BlockKind, frozenset[Grain]] = {
    BlockKind.CODE: frozenset({Grain.SENTENCE}),
    BlockKind.HTML: frozenset({Grain.SENTENCE}),
    BlockKind.FRONT_MATTER: frozenset({Grain.SENTENCE}),
    BlockKind.REFERENCE: frozenset({Grain.SENTENCE}),
    BlockKind.TABLE: frozenset({Grain.SENTENCE}),
    BlockKind.TABLE_ROW: frozenset({Grain.SENTENCE}),
}


class Piece:
    """A range of the text that goes into one chunk as a whole.

    Attributes:
        first: First character of the text in it; a line keeps its indentation.
        last: One past the last character that is not white space.
        start: Start of the range that is counted, white space before the text included.
        end: End of that range.
        kind: Kind of the top-level block that the piece is from.
        shape: Kind of the innermost block that the piece is from, which says how it is cut.
        is_bare: Whether the piece says nothing without the text that follows it.
        section: Index of the section that the piece is in.
        header: Header that the piece needs when a chunk begins with it.
        tokens: Number of tokens, once counted; ``None`` for a piece that is cut uncounted.
    """

    __slots__ = (
        "block",
        "end",
        "first",
        "grain",
        "header",
        "is_bare",
        "kind",
        "last",
        "parts",
        "section",
        "shape",
        "start",
        "tokens",
    )

    def __init__(
        self,
        text: str,
        start: int,
        end: int,
        *,
        kind: BlockKind,
        shape: BlockKind,
        section: int,
        block: Block | None = None,
        grain: Grain = Grain.BLOCK,
        header: TableHeader | None = None,
        last: int | None = None,
    ) -> None:
        self.last = trimmed_end(text, start, end) if last is None else last
        self.first = start if not text[start].isspace() else trimmed_start(text, start, self.last)
        self.start = start if self.first - start <= MAX_GAP else self.first
        self.end = end if end - self.last <= MAX_GAP else self.last
        self.kind = kind
        self.shape = shape
        self.is_bare = shape in _BARE
        self.section = section
        self.block = block
        self.grain = grain
        self.header = header
        self.tokens: int | None = None
        self.parts: list[Piece] | None = None


def cut(text: str, piece: Piece, header: TableHeader | None = None) -> list[Piece]:
    """Return the next finer pieces of ``piece``.

    Args:
        text: The whole document.
        piece: The piece to cut.
        header: Header for the later rows, when the piece is a table.

    Returns:
        Pieces side by side that cover ``piece``; empty when it cannot be cut.
    """
    if piece.parts is not None:
        return piece.parts
    block = piece.block
    if block is not None and block.children:
        if block.header is not None:
            return _rows(text, piece, block, header)
        return _children(text, piece, block)
    visible = piece.first
    while text[visible].isspace():  # an indentation is no piece of its own
        visible += 1
    skipped = _SKIPPED.get(piece.shape, frozenset())
    for grain, cutter in _CUTTERS.items():
        if grain <= piece.grain or grain in skipped:
            continue
        cuts = cutter(text, visible, piece.last)
        if cuts:
            bounds = [piece.start, *cuts, piece.end]
            return [
                Piece(
                    text,
                    start,
                    end,
                    kind=piece.kind,
                    shape=piece.shape,
                    section=piece.section,
                    grain=grain,
                    header=piece.header,
                )
                for start, end in pairwise(bounds)
            ]
    return []


def _children(text: str, piece: Piece, block: Block) -> list[Piece]:
    """Return one piece per inner block; what lies between two goes with the first."""
    starts = [piece.start, *(child.start for child in block.children[1:]), piece.end]
    return [
        Piece(
            text,
            start,
            end,
            kind=piece.kind,
            shape=child.kind,
            section=piece.section,
            block=child,
            header=piece.header,
        )
        for child, start, end in zip(block.children, starts, starts[1:], strict=False)
    ]


def _rows(text: str, piece: Piece, block: Block, header: TableHeader | None) -> list[Piece]:
    """Return a table's rows, the first one together with the header lines above it."""

    def build(start: int, end: int, above: TableHeader | None) -> Piece:
        return Piece(
            text,
            start,
            end,
            kind=piece.kind,
            shape=BlockKind.TABLE_ROW,
            section=piece.section,
            header=above,
        )

    starts = [row.start for row in block.children]
    ends = [*starts[1:], piece.end]
    top = build(piece.start, ends[0], piece.header)
    top.parts = [build(piece.start, starts[0], piece.header), build(starts[0], ends[0], header)]
    rows = [build(start, end, header) for start, end in zip(starts[1:], ends[1:], strict=True)]
    return [top, *rows]
