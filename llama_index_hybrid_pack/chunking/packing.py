"""Packing blocks into chunks under a token budget.

Chunks follow the document's sections. Inside a section blocks are put together as long as they
fit; a block that fits alone is never cut, one that does not is cut at its pieces. Every piece is
counted once, and only what is cut is counted again at the finer grain, so the cost is linear in
the length of the text. Nothing here depends on a format or on LlamaIndex.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from llama_index_hybrid_pack.chunking.blocks import Block
from llama_index_hybrid_pack.chunking.drafts import (
    Chunk,
    Draft,
    Limits,
    even_tail,
    join_small,
    whole_draft,
)
from llama_index_hybrid_pack.chunking.measuring import CHARACTERS_PER_TOKEN, Measure
from llama_index_hybrid_pack.chunking.pieces import Grain, Piece, cut
from llama_index_hybrid_pack.chunking.sections import Path, Section
from llama_index_hybrid_pack.chunking.table_header import CELL_WIDTHS, TableHeader, shortened_header

#: Sections whose pieces are counted together.
_BATCH = 256


def pack(
    sections: Sequence[Section],
    measure: Measure,
    limits: Callable[[Path], Limits],
    *,
    min_chunk_size: int = 0,
) -> Iterator[Chunk]:
    """Put a document's blocks together into chunks, one after the other.

    Args:
        sections: The document's sections, from :func:`split_sections`.
        measure: Counts tokens of the document.
        limits: Tokens that a chunk under a path may hold.
        min_chunk_size: Sections of fewer tokens are joined with neighbours that are as small;
            0 never joins sections.

    Yields:
        Chunks in document order: disjoint, together covering every non-space character of the
        blocks. A chunk is over its budget only when it is a single character.
    """
    drafts = _drafts(sections, measure, limits)
    if min_chunk_size:
        drafts = join_small(drafts, sections, limits, min_chunk_size)
    for draft in drafts:
        yield draft.chunk(sections)


def _drafts(
    sections: Sequence[Section], measure: Measure, limits: Callable[[Path], Limits]
) -> Iterator[Draft]:
    """Yield the drafts of one section after the other."""
    packer = _Packer(measure)
    waiting: list[Piece] = []
    bare_limit: int | None = None
    last = len(sections) - 1
    for first in range(0, len(sections), _BATCH):
        batch_limits = [limits(section.path) for section in sections[first : first + _BATCH]]
        pieces = _pieces(measure, sections, first, batch_limits)
        for index, (group, limit) in enumerate(zip(pieces, batch_limits, strict=True), first):
            bare_limit = limit.body if bare_limit is None else min(bare_limit, limit.body)
            waiting.extend(group)
            if index < last and all(piece.is_bare for piece in group):
                continue  # a heading without text goes with the text that follows
            yield from packer.pack(waiting, limit, bare_limit)
            waiting = []
            bare_limit = None


def _pieces(
    measure: Measure, sections: Sequence[Section], first: int, limits: Sequence[Limits]
) -> list[list[Piece]]:
    """Return one counted piece per block, for as many sections from ``first`` as have limits."""
    text = measure.text
    behind = first + len(limits)
    blocks = [block for section in sections[first:behind] for block in section.blocks]
    ends = [block.start for block in blocks[1:]]
    ends.append(sections[behind].blocks[0].start if behind < len(sections) else blocks[-1].end)
    end = iter(ends)
    pieces = [
        [
            Piece(
                text,
                block.start,
                next(end),
                kind=block.kind,
                shape=block.kind,
                section=index,
                block=block,
                last=block.end,
            )
            for block in section.blocks
        ]
        for index, section in enumerate(sections[first:behind], first)
    ]
    # All paths of a document leave at least half of the same budget.
    largest = max(limit.body for limit in limits)
    measure.count_pieces([piece for group in pieces for piece in group], largest)
    return pieces


class _Packer:
    """Puts the pieces of one section after the other into drafts."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._text = measure.text
        self._bare_limit = 0

    def pack(self, pieces: Sequence[Piece], limits: Limits, bare_limit: int) -> list[Draft]:
        """Return the drafts of one section.

        Args:
            pieces: The section's pieces, and before them those of sections without text.
            limits: Tokens of a chunk of the section.
            bare_limit: Tokens of a chunk of headings alone; each stands under its own path.
        """
        whole = whole_draft(pieces, bare_limit)
        if whole is not None:
            return [whole]
        self._bare_limit = bare_limit
        queue = deque(pieces)
        drafts: list[Draft] = []
        draft = Draft()
        while queue or draft.pieces:
            if queue and self._take(draft, queue, limits):
                continue
            if not draft.pieces:  # the next piece was cut
                continue
            if self._close(draft, queue, limits):
                drafts.append(draft)
                draft = Draft()
        if len(drafts) == 1:
            drafts[0].whole_section = True
        else:
            even_tail(drafts, limits.body)
        return drafts

    def _take(self, draft: Draft, queue: deque[Piece], limits: Limits) -> bool:
        """Move the next piece into the draft, or cut it; ``False`` when the draft is full."""
        piece = queue[0]
        only_bare = draft.is_bare and piece.is_bare
        body = self._bare_limit if only_bare else limits.body
        room = body - draft.tokens
        gap = self._gap(draft, piece, room)
        if gap >= room and draft.pieces:
            return False
        cost = None if piece.tokens is None else piece.tokens + gap
        if draft.pieces and only_bare:
            room -= body // 2  # leave room for text under the last heading
        if cost is not None and cost <= room:
            queue.popleft()
            if not draft.pieces and piece.header and cost + piece.header.tokens <= room:
                draft.header = piece.header
                draft.tokens += piece.header.tokens
            draft.pieces.append(piece)
            draft.tokens += cost
            return True
        fits_alone = piece.tokens is not None and piece.tokens <= body
        if fits_alone and draft.pieces and not self._wants_text(draft, piece, limits):
            return False
        if self._cut(queue, limits):
            return True
        if draft.pieces:
            return False
        queue.popleft()  # a single character over the budget
        draft.pieces.append(piece)
        draft.tokens += piece.tokens or 0
        return True

    def _wants_text(self, draft: Draft, piece: Piece, limits: Limits) -> bool:
        """Tell whether to cut ``piece`` rather than to leave headings in a chunk of their own."""
        return draft.is_bare and not piece.is_bare and draft.tokens <= limits.body // 2

    def _gap(self, draft: Draft, piece: Piece, room: int) -> int:
        """Return the tokens of white space that is too long to be counted with every piece."""
        if not draft.pieces or piece.start <= draft.pieces[-1].end:
            return 0
        start, end = draft.pieces[-1].last, piece.first
        if end - start > room * CHARACTERS_PER_TOKEN:
            return room
        return self._measure.count_span(start, end)

    def _cut(self, queue: deque[Piece], limits: Limits) -> bool:
        """Replace the next piece by its parts; ``False`` when it has none."""
        piece = queue[0]
        header = self._table_header(piece.block, limits) if piece.block else None
        parts = cut(self._text, piece, header)
        if not parts:
            return False
        queue.popleft()
        self._measure.count_pieces(parts, limits.body)
        queue.extendleft(reversed(parts))
        return True

    def _close(self, draft: Draft, queue: deque[Piece], limits: Limits) -> bool:
        """Make sure that the draft as a whole is inside the budget.

        Tokens of neighbours may join differently from how they were counted one by one. Where
        that could matter, the draft is counted as a whole, and its last pieces go back.

        Returns:
            ``False`` when the draft goes on because its text went back and only headings stay.
        """
        while (excess := self._excess(draft, limits)) > 0:
            if draft.header and len(draft.pieces) == 1:
                draft.header = None  # the row itself comes first
                continue
            piece = draft.pieces.pop()
            queue.appendleft(piece)
            excess -= piece.tokens or 1
            while excess > 0 and len(draft.pieces) > 1 and not draft.pieces[-2].is_bare:
                piece = draft.pieces.pop()
                queue.appendleft(piece)
                excess -= piece.tokens or 1
            if draft.pieces and not draft.is_bare:
                continue
            if self._cut(queue, limits):
                draft.tokens = self._recount(draft)
                return False
            if not draft.pieces:
                draft.pieces.append(queue.popleft())
            return True
        return True

    def _excess(self, draft: Draft, limits: Limits) -> int:
        """Return the tokens over the budget; 0 or less when the draft is surely inside it."""
        body = self._bare_limit if draft.is_bare else limits.body
        slack = len(draft.pieces) + (draft.header is not None)
        if draft.tokens + slack <= body and all(p.grain < Grain.RUN for p in draft.pieces):
            return 0  # between words, joining costs a token at most
        draft.tokens = self._recount(draft)
        if draft.header:
            draft.tokens += limits.header_overhead
        return draft.tokens - body

    def _recount(self, draft: Draft) -> int:
        if not draft.pieces:
            return 0
        before = f"{draft.header.text}\n" if draft.header else ""
        return self._measure.count_span(draft.pieces[0].first, draft.pieces[-1].last, before)

    def _table_header(self, block: Block, limits: Limits) -> TableHeader | None:
        """Return a table's header with at most half of the budget, shortened where needed."""
        if block.header is None:
            return None
        text = self._text[block.header.start : block.header.end]
        most = limits.body // 2 - limits.header_overhead
        if most <= 0:
            return None
        for candidate in (text, *(shortened_header(text, width) for width in CELL_WIDTHS)):
            tokens = self._measure.count_texts([f"{candidate}\n"], most)[0]
            if tokens <= most:
                return TableHeader(candidate, tokens + limits.header_overhead)
        return None
