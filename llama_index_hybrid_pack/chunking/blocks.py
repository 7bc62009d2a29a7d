"""The block model that every format is read into: typed blocks with exact character spans.

A reader of a format (Markdown, plain text, later HTML and reStructuredText) turns a text into
top-level :class:`Block` objects in document order. They do not overlap and together cover every
character that is not white space, front matter excepted. What comes after (packing, headings,
table headers) knows blocks only, never a format's syntax.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

#: A value that front matter can put into metadata.
Scalar = str | int | float | bool
#: Metadata read from a document's own text.
MetadataValue = Scalar | list[Scalar]


class BlockKind(str, Enum):
    """What a block is, in words that fit every format."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    LIST = "list"
    LIST_ITEM = "list_item"
    TABLE = "table"
    TABLE_ROW = "table_row"
    CODE = "code"
    QUOTE = "quote"
    HTML = "html"
    THEMATIC_BREAK = "thematic_break"
    REFERENCE = "reference"
    """Definitions that are not shown where they stand, for example of link targets."""
    FRONT_MATTER = "front_matter"
    """Front matter that cannot be read; readable front matter is metadata, not a block."""


class Span(NamedTuple):
    """Half-open range of characters in the source text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a document and the inner blocks at which it may be cut.

    Args:
        kind: What the block is.
        start: First character in the source text; where a line's indentation matters, it is
            part of the block.
        end: One past the last character; trailing white space is not part of the block.
        level: Level of a heading, from 1; 0 for every other kind.
        title: Text of a heading without markup; empty for every other kind.
        header: Span of a table's header lines, which its later rows need to be understood.
        children: Inner blocks in order: a list's items, a table's rows below its header, the
            blocks of a quote or a list item. A block without children is cut by its kind:
            code at blank lines and lines, text at sentences.

    Example:
        >>> block = Block(BlockKind.HEADING, 0, 9, level=1, title="Refunds")
        >>> block.span
        Span(start=0, end=9)
    """

    kind: BlockKind
    start: int
    end: int
    level: int = 0
    title: str = ""
    header: Span | None = None
    children: tuple[Block, ...] = ()

    @property
    def span(self) -> Span:
        """Range of the block in the source text."""
        return Span(self.start, self.end)


@dataclass(frozen=True, slots=True)
class ParsedText:
    """What a format's reader found in one text.

    Args:
        blocks: Top-level blocks in document order.
        metadata: Values that the text states about itself (front matter); they are not part of
            any block.
    """

    blocks: tuple[Block, ...]
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
