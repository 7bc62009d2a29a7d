"""The Markdown blocks that a regular expression can tell for sure.

Headings, plain paragraphs, tables with pipes at both ends and fenced code are most of most
documents, and the full grammar reads them many times slower. A paragraph is taken only when each
of its lines begins so that it can be nothing else (no list, quote, fence, table, underline, HTML or
link definition) and it is followed by a blank line, a heading or the end; the others as strictly.
Everything else is left to the full grammar. The tests hold both equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from llama_index_hybrid_pack.chunking.blocks import Block, BlockKind, Span
from llama_index_hybrid_pack.chunking.plain_text import trimmed_end

#: Beginnings of a line that start, interrupt or underline nothing.
_PLAIN = r"""(?:[^\W\d_]|["'(“‘«„¿¡]|(?!\d{1,9}[.)])\d|\*{1,2}(?=[^\W_])|`(?=[^`\n]))"""  # noqa: RUF001
_END = r"(?:\n|\Z)"
_BEFORE_NEXT = rf"(?=[ \t]*{_END}|#{{1,6}}(?:[ \t\n]|\Z))"
_DASHES = r"[ \t]*:?-+:?[ \t]*"
_BLOCK = re.compile(
    rf"(?P<heading>(?P<marker>#{{1,6}})(?:[ \t]+(?P<title>[^\n]*))?{_END})"
    rf"|(?P<paragraph>(?:{_PLAIN}[^\n]*{_END})+){_BEFORE_NEXT}"
    r"|(?P<blank>[ \t]*\n(?:[ \t]*\n)*|[ \t]+\Z)"
    rf"|(?P<table>(?P<header>\|[^\n\\`]*\|)[ \t]*\n(?P<dashes>(?:\|{_DASHES})+\|)[ \t]*{_END}"
    rf"(?P<rows>(?:\|[^\n]*{_END})*)){_BEFORE_NEXT}"
    rf"|(?P<fence>(?:(?P<ticks>`{{3,}})[^`\n]*\n(?:[^\n]*\n)*? {{0,3}}(?P=ticks)`*"
    rf"|(?P<tildes>~{{3,}})(?!~)[^\n]*\n(?:[^\n]*\n)*? {{0,3}}(?P=tildes)~*)[ \t]*{_END})"
)


def simple_blocks(text: str, start: int) -> Iterator[tuple[Block | None, int]]:
    r"""Yield the simple blocks from ``start`` on, until one that needs the full grammar.

    Args:
        text: A document whose lines end in ``\n`` only.
        start: Start of a line at which no block is open.

    Yields:
        A block, or ``None`` for blank lines, and the start of the line behind it. A heading's
        title still holds its inline markup.
    """
    position = start
    end = len(text)
    while position < end:
        found = _BLOCK.match(text, position)
        if found is None:
            return
        after = found.end()
        build = _BUILDERS.get(found.lastgroup or "")
        if build is None:
            yield None, after
        else:
            block = build(text, found, trimmed_end(text, position, after))
            if block is None:
                return
            yield block, after
        position = after


def _heading(_text: str, found: re.Match[str], end: int) -> Block:
    title = (found["title"] or "").rstrip(" \t")
    unhashed = title.rstrip("#")
    if not unhashed or unhashed[-1] in " \t":
        title = unhashed
    return Block(BlockKind.HEADING, found.start(), end, len(found["marker"]), title.strip())


def _paragraph(_text: str, found: re.Match[str], end: int) -> Block:
    return Block(BlockKind.PARAGRAPH, found.start(), end)


def _fence(_text: str, found: re.Match[str], end: int) -> Block:
    return Block(BlockKind.CODE, found.start(), end)


def _table(text: str, found: re.Match[str], end: int) -> Block | None:
    if found["header"].count("|") != found["dashes"].count("|"):
        return None
    rows = []
    position = found.start("rows")
    while position < end:
        after = text.find("\n", position, end)
        after = end if after < 0 else after
        rows.append(Block(BlockKind.TABLE_ROW, position, trimmed_end(text, position, after)))
        position = after + 1
    header = Span(found.start(), found.end("dashes"))
    return Block(BlockKind.TABLE, found.start(), end, header=header, children=tuple(rows))


_BUILDERS: dict[str, Callable[[str, re.Match[str], int], Block | None]] = {
    "heading": _heading,
    "paragraph": _paragraph,
    "table": _table,
    "fence": _fence,
}
