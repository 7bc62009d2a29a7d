"""Chunks in the making, and what is done to them once a section is packed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from llama_index_hybrid_pack.chunking.blocks import BlockKind
from llama_index_hybrid_pack.chunking.pieces import Piece
from llama_index_hybrid_pack.chunking.sections import Path, Section, common_path
from llama_index_hybrid_pack.chunking.table_header import TableHeader

#: A section's last chunk below this share of the budget is evened out with the one before it.
_SMALL_TAIL = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """Tokens that a chunk under some heading may hold.

    Args:
        body: Tokens of the chunk's own text, a repeated table header included; at least 1.
        header_overhead: Further tokens that a repeated table header costs.
    """

    body: int
    header_overhead: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of a document.

    Args:
        start: First character in the source text.
        end: One past the last character.
        path: Headings above the chunk, its own included.
        kind: Kind of the blocks that fill most of it.
        table_header: Header lines of the table whose later rows the chunk begins with.
    """

    start: int
    end: int
    path: Path
    kind: BlockKind
    table_header: str | None = None


class Draft:
    """A chunk in the making.

    Attributes:
        pieces: Its pieces in order.
        tokens: What they are counted as, with a repeated table header.
        header: The table header that is shown before the first piece.
        whole_section: Whether it holds all of its section, so that it may be joined with others.
        joined: Whether it holds several sections.
    """

    __slots__ = ("header", "joined", "pieces", "tokens", "whole_section")

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.tokens = 0
        self.header: TableHeader | None = None
        self.whole_section = False
        self.joined = False

    @property
    def is_bare(self) -> bool:
        """Whether all pieces say nothing without text that follows; true of an empty draft."""
        for piece in self.pieces:  # noqa: SIM110 - asked for every piece, and faster so
            if not piece.is_bare:
                return False
        return True

    def chunk(self, sections: Sequence[Section]) -> Chunk:
        """Return the finished chunk."""
        sizes: dict[BlockKind, int] = {}
        for piece in self.pieces:
            size = 0 if piece.is_bare else piece.last - piece.first
            sizes[piece.kind] = sizes.get(piece.kind, 0) + size
        return Chunk(
            start=self.pieces[0].first,
            end=self.pieces[-1].last,
            path=self.path(sections),
            kind=max(sizes, key=lambda kind: sizes[kind]),
            table_header=self.header.text if self.header else None,
        )

    def path(self, sections: Sequence[Section]) -> Path:
        """Return the headings that all text of the draft is under."""
        if not self.joined:
            return sections[self.pieces[-1].section].path
        body = [piece for piece in self.pieces if not piece.is_bare] or self.pieces[-1:]
        paths = [sections[index].path for index in dict.fromkeys(piece.section for piece in body)]
        return reduce(common_path, paths)


def whole_draft(pieces: Sequence[Piece], budget: int) -> Draft | None:
    """Return a draft of all pieces, when it is sure that they fit together."""
    tokens = 0
    place = pieces[0].start
    for piece in pieces:
        if piece.tokens is None or piece.start != place:
            return None
        tokens += piece.tokens
        place = piece.end
    if tokens + len(pieces) > budget:
        return None
    draft = Draft()
    draft.pieces.extend(pieces)
    draft.tokens = tokens
    draft.whole_section = True
    return draft


def even_tail(drafts: list[Draft], budget: int) -> None:
    """Move pieces from the last draft but one into a last draft that is small."""
    if len(drafts) < 2 or drafts[-1].tokens * _SMALL_TAIL >= budget:
        return
    before, tail = drafts[-2:]
    while len(before.pieces) > 1 and not before.pieces[-2].is_bare:
        piece = before.pieces[-1]
        tokens = piece.tokens or 0
        grown = tail.tokens + tokens
        slack = len(tail.pieces) + 2
        if grown > before.tokens - tokens or grown + slack > budget:
            return
        if piece.header is not tail.header:
            return
        before.pieces.pop()
        before.tokens -= tokens
        tail.pieces.insert(0, piece)
        tail.tokens = grown


def join_small(
    drafts: Iterable[Draft],
    sections: Sequence[Section],
    limits: Callable[[Path], Limits],
    smallest: int,
) -> Iterator[Draft]:
    """Join neighbouring sections that are both smaller than ``smallest`` tokens."""
    before: Draft | None = None
    for draft in drafts:
        if before is None:
            before = draft
        elif _may_join(before, draft, sections, limits, smallest):
            before.pieces.extend(draft.pieces)
            before.tokens += draft.tokens
            before.joined = True
        else:
            yield before
            before = draft
    if before is not None:
        yield before


def _may_join(
    first: Draft,
    second: Draft,
    sections: Sequence[Section],
    limits: Callable[[Path], Limits],
    smallest: int,
) -> bool:
    if not (first.whole_section and second.whole_section):
        return False
    if max(first.tokens, second.tokens) >= smallest:
        return False
    path = common_path(first.path(sections), second.path(sections))
    slack = len(first.pieces) + len(second.pieces)
    return first.tokens + second.tokens + slack <= limits(path).body
