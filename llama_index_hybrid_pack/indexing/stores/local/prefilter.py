"""Metadata values as numbers inside the lexical index, to narrow a search before its exact filter.

The row set from the table decides what passes. But a filter such as ``tenant == "red"`` can also
be said with terms of the lexical index, which reads far less than a search over all documents
followed by the row set. What is built here may let through more than the filter (other numbers
may collide, operators that terms cannot express are left out), never less.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Union

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_index_hybrid_pack.indexing.filters import Schema, facets
from llama_index_hybrid_pack.indexing.filters.semantics import comparable

_ONE = frozenset({FilterOperator.EQ, FilterOperator.CONTAINS})
_ANY = frozenset({FilterOperator.IN, FilterOperator.ANY})
#: More values than this are left to the row set.
_MOST_VALUES = 200


class FacetGroup(NamedTuple):
    """Every or any of its members."""

    every: bool
    members: Sequence[FacetTest]


#: A facet's number, or a group of tests.
FacetTest = Union[int, FacetGroup]  # noqa: UP007 - evaluated at run time on Python 3.10


def facet_numbers(metadata: Mapping[str, Any], schema: Schema) -> list[int]:
    """Return the numbers under which a node's metadata values are indexed.

    Args:
        metadata: The node's metadata.
        schema: Declared field types.
    """
    return [
        _number(name, value)
        for name, value in facets(metadata, schema=schema)
        if not isinstance(value, bytes)
    ]


def facet_test(item: MetadataFilters | MetadataFilter | None, schema: Schema) -> FacetTest | None:
    """Return a test that every match of a filter passes, or ``None`` if there is none.

    Args:
        item: A validated filter.
        schema: Declared field types.
    """
    if item is None:
        return None
    if isinstance(item, MetadataFilter):
        return _leaf(item, schema)
    members = [facet_test(member, schema) for member in item.filters]
    known = [member for member in members if member is not None]
    if item.condition is FilterCondition.AND and known:
        return FacetGroup(True, known)
    if item.condition is FilterCondition.OR and known and len(known) == len(members):
        return FacetGroup(False, known)
    return None


def _leaf(item: MetadataFilter, schema: Schema) -> FacetTest | None:
    if item.operator in _ONE:
        return _number(item.key, comparable(item, schema.get(item.key)))
    if item.operator in _ANY or item.operator is FilterOperator.ALL:
        values = comparable(item, schema.get(item.key))
        if 0 < len(values) <= _MOST_VALUES:
            numbers = [_number(item.key, value) for value in values]
            return FacetGroup(item.operator is FilterOperator.ALL, numbers)
    return None


@lru_cache(maxsize=65536)
def _number(name: str, value: str | float) -> int:
    # Equal values must give equal numbers: 1 and 1.0 are one cache entry, and one text here.
    text = f"{name}\x00s{value}" if isinstance(value, str) else f"{name}\x00n{float(value)!r}"
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
