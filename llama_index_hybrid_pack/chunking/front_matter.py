"""YAML front matter: the lines between ``---`` at the very start of a Markdown document."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from llama_index_hybrid_pack.chunking.blocks import MetadataValue, Scalar

#: Front matter is metadata, not a data file: a longer one is taken for text.
MAX_FRONT_MATTER = 65_536

#: Not followed by a blank line: that would be a thematic break (Pandoc's rule).
_OPENING = re.compile(r"\ufeff?---[ \t]*(?:\r\n|\r|\n)(?![ \t]*[\r\n])")
_CLOSING = re.compile(r"(?:^|(?<=[\r\n]))(?:---|\.\.\.)[ \t]*(?:\r\n|\r|\n|\Z)")


#: A first line ``key: …`` or a comment, and no blank line: meant as front matter.
_MEANT = re.compile(r"(?:#|[\w\"'][^\r\n:]*:)(?:(?!(?:\r\n|\r|\n)[ \t]*[\r\n])[\s\S])*\Z")


class FrontMatter(NamedTuple):
    """Metadata of a document and where its body begins.

    Args:
        metadata: What the front matter says; empty when it is malformed.
        end: Offset behind the closing line; 0 when there is no front matter.
        malformed: Whether the lines are meant as front matter but are no YAML; they are text.
    """

    metadata: dict[str, MetadataValue]
    end: int
    malformed: bool = False


class _Loader(yaml.SafeLoader):
    """YAML's safe loader without aliases: a few of them can stand for gigabytes."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            msg = "aliases are not read in front matter"
            raise yaml.YAMLError(msg)
        return super().compose_node(parent, index)


def read_front_matter(text: str) -> FrontMatter:
    r"""Read the front matter at the very start of ``text``.

    Scalars and lists of scalars are taken over; dates become ISO strings, a nested mapping
    gives one dotted key per value (``author.name``), any other nesting a JSON string. Empty
    values are left out. What is not a YAML mapping between ``---`` lines stays text.

    Args:
        text: The whole document.

    Returns:
        The metadata and the offset behind the closing line; ``({}, 0, False)`` when there is
        none.

    Example:
        >>> read_front_matter("---\ntitle: Refunds\ntags: [billing, eu]\n---\nText").metadata
        {'title': 'Refunds', 'tags': ['billing', 'eu']}
    """
    opening = _OPENING.match(text)
    if opening is None:
        return FrontMatter({}, 0)
    closing = _CLOSING.search(text, opening.end(), opening.end() + MAX_FRONT_MATTER)
    if closing is None:
        return FrontMatter({}, 0)
    source = text[opening.end() : closing.start()]
    content, metadata = None, None
    try:
        content = yaml.load(source, Loader=_Loader)  # noqa: S506
        if isinstance(content, Mapping):
            metadata = _flatten(content)
    except (yaml.YAMLError, ValueError, TypeError, ArithmeticError, RecursionError):
        content = None  # PyYAML raises more than its own errors, for example on the 31st of June
    if metadata is not None:
        return FrontMatter(metadata, closing.end())
    if content is None and _MEANT.match(source.rstrip()):
        return FrontMatter({}, closing.end(), malformed=True)
    return FrontMatter({}, 0)


def _flatten(mapping: Mapping[object, object], prefix: str = "") -> dict[str, MetadataValue]:
    """Return one entry per value of a mapping, nested keys joined with dots."""
    flat: dict[str, MetadataValue] = {}
    for key, value in mapping.items():
        name = f"{prefix}{_scalar(key)}"
        if isinstance(value, Mapping):
            flat.update(_flatten(value, f"{name}."))
        elif isinstance(value, list | tuple | set):
            items = [_scalar(item) for item in value if item is not None]
            if any(isinstance(item, Mapping | list | tuple | set) for item in value):
                flat[name] = json.dumps(value, ensure_ascii=False, default=_scalar)
            elif items:
                flat[name] = items
        elif value is not None:
            flat[name] = _scalar(value)
    return flat


def _scalar(value: object) -> Scalar:
    """Return a value as one that every vector store can hold."""
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value)
