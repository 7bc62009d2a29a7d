"""Sections of a document: the blocks under one heading, and the path of headings above them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile

from llama_index_hybrid_pack.chunking.blocks import Block, BlockKind

#: Texts of the headings above a place, the document's first.
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under one heading, the heading included.

    Args:
        path: Headings from the document's top down to the section's own.
        blocks: The section's blocks in order.
    """

    path: Path
    blocks: list[Block] = field(default_factory=list)


def split_sections(blocks: Iterable[Block]) -> list[Section]:
    r"""Group blocks by the heading above them.

    Args:
        blocks: Top-level blocks in document order.

    Returns:
        One section per heading, and one before the first heading if there is text.

    Example:
        >>> from llama_index_hybrid_pack.chunking.markdown import parse_markdown
        >>> blocks = parse_markdown("Intro\n# A\n### B\n## C\n").blocks
        >>> [section.path for section in split_sections(blocks)]
        [(), ('A',), ('A', 'B'), ('A', 'C')]
    """
    sections: list[Section] = []
    stack: list[Block] = []
    for block in blocks:
        if block.kind is BlockKind.HEADING:
            while stack and stack[-1].level >= block.level:
                stack.pop()
            stack.append(block)
            sections.append(Section(tuple(above.title for above in stack if above.title)))
        elif not sections:
            sections.append(Section(()))
        sections[-1].blocks.append(block)
    return sections


def common_path(first: Path, second: Path) -> Path:
    """Return the part at the top that two paths share."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return tuple(title for title, _ in pairs)
