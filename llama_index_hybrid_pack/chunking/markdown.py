"""Markdown (CommonMark with GitHub's tables) to blocks with exact spans.

The grammar is markdown-it-py's; only its block rules run, because inline markup matters for
headings alone. It reads a text whose line ends and NUL characters it has normalised, so spans
come from the line numbers of its tokens and a line table of the text as it was given.

A document is read in windows: of each window every top-level block but the last is taken, and the
next one begins at that last block. CommonMark's top level has no state between blocks, so the
result is the same, memory for tokens stays bounded, and headings and plain paragraphs between two
windows need no grammar at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt, rules_block
from markdown_it.token import Token

from llama_index_hybrid_pack.chunking.blocks import Block, BlockKind, ParsedText, Span
from llama_index_hybrid_pack.chunking.front_matter import FrontMatter, read_front_matter
from llama_index_hybrid_pack.chunking.plain_text import line_starts, trimmed_end, trimmed_start
from llama_index_hybrid_pack.chunking.simple_markdown import simple_blocks

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
_LINE_END = re.compile(r"\r\n?|\n")
_NEXT_SECTION = re.compile(r"\n\n#{1,6} [^\r\n]*\n")


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING})
    parser.enable("strikethrough")
    # markdown-it tries tables first, so that "## a | b" over dashes would be one. GitHub's
    # extension makes tables of paragraphs only.
    parser.block.ruler.before(
        "lheading", "gfm_table", rules_block.table, {"alt": ["paragraph", "reference"]}
    )
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
    """State of reading one document: the link references found so far, the lines in hand."""

    def __init__(self, text: str, body_start: int) -> None:
        self._text = text
        self._body_start = body_start
        if not body_start and text.startswith("\ufeff"):
            self._body_start = 1  # a byte order mark is no text and hides a heading behind it
        self._starts: list[int] = []
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
        position, end = self._body_start, len(self._text)
        simple = "\r" not in self._text
        while position < end:
            if simple:
                for block, after in simple_blocks(self._text, position):
                    position = after
                    if block:
                        yield block
            if position < end:
                blocks, position = self._window(position)
                yield from blocks

    def _window(self, start: int) -> tuple[list[Block], int]:
        """Read blocks from ``start`` on by the full grammar, to about the next heading.

        Returns:
            The blocks, and where the next one begins.
        """
        text, end = self._text, len(self._text)
        section = _NEXT_SECTION.search(text, start + 1, start + WINDOW)
        stop = section.end() if section else _line_end(text, start + WINDOW)
        size = stop - start
        while True:
            tokens = _parser().parse(text[start:stop], self._environment)
            groups = list(_groups(tokens, 0, len(tokens), 0))
            if len(groups) > 1 or stop == end:
                break
            size *= 2  # one block fills the window
            stop = _line_end(text, start + size)
        self._starts = [start + offset for offset in line_starts(text[start:stop])]
        following = stop
        if stop < end:
            following = self._starts[(tokens[groups.pop()[0]].map or [0])[0]]
        blocks: list[Block] = []
        covered = start
        for first, last in groups:
            begin, behind = tokens[first].map or (0, 0)
            blocks.extend(self._references(covered, self._starts[begin]))
            blocks.extend(self._block(tokens, first, last))
            covered = self._starts[behind]
        blocks.extend(self._references(covered, following))
        return blocks, following

    def _references(self, start: int, end: int) -> Iterator[Block]:
        """Yield the lines that gave no token: definitions of link targets."""
        end = trimmed_end(self._text, start, end)
        if end > start:
            yield Block(BlockKind.REFERENCE, trimmed_start(self._text, start, end), end)

    def _block(
        self, tokens: Sequence[Token], first: int, last: int, floor: int = 0
    ) -> Iterator[Block]:
        """Yield the block of ``tokens[first : last + 1]``; ``floor`` is its parent's start."""
        token = tokens[first]
        kind = _KINDS[token.type]
        begin, stop = token.map or (0, 0)
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
                for child in self._block(tokens, inner_first, inner_last, start)
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
        content = content.replace("\0", "\ufffd")  # as CommonMark says
        if _INLINE_MARKUP.search(content):
            tokens: list[Token] = []
            markdown = _parser()
            markdown.inline.parse(content[: 4 * MAX_TITLE], markdown, self._environment, tokens)
            content = _text_of(tokens)
        title = _SPACES.sub(" ", content).strip()
        return title if len(title) <= MAX_TITLE else title[: MAX_TITLE - 1].rstrip() + "…"


def _line_end(text: str, position: int) -> int:
    """Return the end of the line that holds ``position``, its line break included."""
    found = _LINE_END.search(text, min(position, len(text)))
    return found.end() if found else len(text)


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
