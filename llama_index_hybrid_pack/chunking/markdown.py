"""Markdown (CommonMark with GitHub's tables) to blocks with exact spans.

The grammar is markdown-it-py's; only its block rules run, because inline markup matters for
headings alone. It reads a text whose line ends and NUL characters it has normalised, so spans
come from the line numbers of its tokens and a line table of the text as it was given.

A long document is read in windows: of each window every top-level block but the last is taken,
and the next window begins at that last block. CommonMark's top level has no state between
blocks, so the result is the same, and memory for tokens stays bounded.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from llama_index_hybrid_pack.chunking.blocks import Block, BlockKind, ParsedText, Span
from llama_index_hybrid_pack.chunking.front_matter import FrontMatter, read_front_matter
from llama_index_hybrid_pack.chunking.plain_text import (
    line_starts,
    trimmed_end,
    trimmed_start,
)

#: Characters of text that are tokenised at once.
WINDOW = 400_000
#: Deeper nesting of lists and quotes stays one block; Python's recursion limit is the bound.
MAX_NESTING = 100
#: Characters of a heading's title; a longer one is a paragraph over a stray ``---`` line.
MAX_TITLE = 1_000

_KINDS = {
    "heading_open": BlockKind.HEADING,
    "paragraph_open": BlockKind.PARAGRAPH,
    "bullet_list_open": BlockKind.LIST,
    "ordered_list_open": BlockKind.LIST,
    "list_item_open": BlockKind.LIST_ITEM,
    "blockquote_open": BlockKind.QUOTE,
    "table_open": BlockKind.TABLE,
    "fence": BlockKind.CODE,
    "code_block": BlockKind.CODE,
    "html_block": BlockKind.HTML,
    "hr": BlockKind.THEMATIC_BREAK,
}
_CONTAINERS = {BlockKind.LIST, BlockKind.LIST_ITEM, BlockKind.QUOTE}
_INLINE_MARKUP = re.compile(r"[*_\[\]<>&\\!~`\n]")
_SPACES = re.compile(r"\s+")


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING})
    parser.enable(["table", "strikethrough"])
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def parse_markdown(text: str, *, front_matter: bool = True) -> ParsedText:
    r"""Read a Markdown document into blocks; front matter becomes metadata.

    Args:
        text: The document; any line ends, any characters.
        front_matter: Whether to look for front matter; off for a text from inside a document.

    Returns:
        Top-level blocks in order, which cover every non-space character behind the front
        matter, and the front matter's values.

    Example:
        >>> parsed = parse_markdown("# C#\n\n~~~\n# no heading\n~~~\n")
        >>> [(block.kind.value, block.title) for block in parsed.blocks]
        [('heading', 'C#'), ('code', '')]
    """
    front = read_front_matter(text) if front_matter else FrontMatter({}, 0)
    blocks = _Reader(text, front.end).read()
    if front.malformed:
        end = trimmed_end(text, 0, front.end)
        start = 1 if text.startswith("\ufeff") else 0
        blocks.insert(0, Block(BlockKind.FRONT_MATTER, start, end))
    return ParsedText(tuple(blocks), front.metadata)


class _Reader:
    """State of reading one document: its lines and the link references found so far."""

    def __init__(self, text: str, body_start: int) -> None:
        self._text = text
        self._starts = line_starts(text)
        if text.startswith("\ufeff"):
            self._starts[0] = 1  # a byte order mark is no text and hides a heading behind it
        self._first_line = bisect_left(self._starts, body_start)
        self._environment: dict[str, Any] = {}

    def read(self) -> list[Block]:
        """Return all top-level blocks, their headings without markup."""
        blocks = list(self._blocks())
        # Titles come last: a link's target may be defined at the end of the document.
        for index, block in enumerate(blocks):
            if block.kind is BlockKind.HEADING:
                title = self._plain_title(block.title)
                if title != block.title:
                    blocks[index] = replace(block, title=title)
        return blocks

    def _blocks(self) -> Iterator[Block]:
        line, last_line = self._first_line, len(self._starts) - 1
        window = WINDOW
        covered = line
        while line < last_line:
            stop = bisect_left(self._starts, self._starts[line] + window)
            stop = min(max(stop, line + 1), last_line)
            tokens = _parser().parse(
                self._text[self._starts[line] : self._starts[stop]], self._environment
            )
            groups = list(_groups(tokens, 0, len(tokens), 0))
            next_line = last_line
            if stop < last_line:
                if len(groups) < 2:  # one block fills the window
                    window *= 2
                    continue
                next_line = _lines(tokens[groups.pop()[0]], line)[0]
            for first, last in groups:
                begin, end = _lines(tokens[first], line)
                yield from self._references(covered, begin)
                yield from self._block(tokens, first, last, line)
                covered = end
            window = WINDOW
            line = next_line
        yield from self._references(covered, last_line)

    def _references(self, first_line: int, last_line: int) -> Iterator[Block]:
        """Yield the lines that gave no token: definitions of link targets."""
        start, end = self._starts[first_line], self._starts[last_line]
        if start >= end:
            return
        end = trimmed_end(self._text, start, end)
        if end > start:
            start = trimmed_start(self._text, start, end)
            yield Block(BlockKind.REFERENCE, start, end)

    def _block(
        self, tokens: Sequence[Token], first: int, last: int, base: int, floor: int = 0
    ) -> Iterator[Block]:
        """Yield the block of ``tokens[first : last + 1]``; ``floor`` is its parent's start."""
        token = tokens[first]
        kind = _KINDS[token.type]
        begin, stop = _lines(token, base)
        start = max(self._starts[begin], floor)
        end = trimmed_end(self._text, start, self._starts[stop])
        if end == start:  # white space that is none to CommonMark, such as a no-break space
            return
        if kind is BlockKind.HEADING:
            title = tokens[first + 1].content
            if token.level:
                title = self._plain_title(title)
            yield Block(kind, start, end, level=int(token.tag[1:]), title=title)
        elif kind is BlockKind.TABLE:
            yield self._table(start, end, begin, stop)
        elif kind in _CONTAINERS:
            children = tuple(
                child
                for inner_first, inner_last in _groups(tokens, first + 1, last, token.level + 1)
                for child in self._block(tokens, inner_first, inner_last, base, start)
            )
            yield Block(kind, start, end, children=children)
        else:
            yield Block(kind, start, end)

    def _table(self, start: int, end: int, begin: int, stop: int) -> Block:
        """Build a table: the header is its first two lines, each later line is a row."""
        starts = self._starts
        header = Span(start, trimmed_end(self._text, start, starts[begin + 2]))
        rows = tuple(
            Block(
                BlockKind.TABLE_ROW,
                starts[line],
                trimmed_end(self._text, starts[line], starts[line + 1]),
            )
            for line in range(begin + 2, stop)
            if starts[line] < end
        )
        return Block(BlockKind.TABLE, start, end, header=header, children=rows)

    def _plain_title(self, content: str) -> str:
        """Return a heading's text without inline markup."""
        if _INLINE_MARKUP.search(content):
            tokens: list[Token] = []
            markdown = _parser()
            markdown.inline.parse(content[: 4 * MAX_TITLE], markdown, self._environment, tokens)
            content = _text_of(tokens)
        title = _SPACES.sub(" ", content).strip()
        return title if len(title) <= MAX_TITLE else title[: MAX_TITLE - 1].rstrip() + "…"


def _lines(token: Token, base: int) -> tuple[int, int]:
    """Return the first line of a token's block and the line behind it."""
    first, last = token.map or (0, 0)
    return base + first, base + last


def _groups(
    tokens: Sequence[Token], first: int, stop: int, level: int
) -> Iterator[tuple[int, int]]:
    """Yield the index of the first and the last token of each block at ``level``."""
    index = first
    while index < stop:
        opening = index
        if tokens[index].nesting == 1:
            index += 1
            while tokens[index].level != level:
                index += 1
        yield opening, index
        index += 1


def _text_of(tokens: Sequence[Token]) -> str:
    """Return what a reader sees of inline tokens: text, code, the description of images."""
    parts = []
    for token in tokens:
        if token.type in {"softbreak", "hardbreak"}:
            parts.append(" ")
        elif token.type == "image":
            parts.append(_text_of(token.children or []))
        elif token.type in {"text", "text_special", "code_inline"}:
            parts.append(token.content)
    return "".join(parts)
