# ruff: noqa: S608 - the pieces of SQL are constants; what a caller gives is always a parameter
"""Statements over the facets table for one condition of a filter.

Field names and values travel only as parameters. A statement that *lists* rows walks the index
``facets_by_value``; one that *checks* a given row is one seek in the clustered table.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_index_hybrid_pack.indexing.filters.fields import FieldType, Scalar
from llama_index_hybrid_pack.indexing.filters.semantics import NEGATIVE, comparable


class Sql(NamedTuple):
    """A piece of SQL with the parameters of its question marks."""

    text: str
    params: tuple[Scalar | bytes, ...] = ()


#: Lists up to this length are single parameters; longer ones travel as one JSON text, because
#: SQLite limits the number of parameters.
_MAX_INLINE = 50

_FIELD = "f.field = (SELECT field FROM fields WHERE name = ?)"
#: Texts lie between all numbers and all blobs in SQLite's order of values.
_IS_TEXT = "f.value >= '' AND f.value < x''"
#: Neither an empty text nor the mark of an empty field.
_IS_FILLED = "f.value <> '' AND f.value <> x'00'"
#: A text that is passed as such ends at its first NUL in some versions of Python.
_BYTES = "CAST(f.value AS BLOB)"
_COMPARISONS = {
    FilterOperator.GT: ">",
    FilterOperator.GTE: ">=",
    FilterOperator.LT: "<",
    FilterOperator.LTE: "<=",
}
_TEXTS = (FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE)

#: Lists every row that is in the table.
ALL_ROWS = Sql("SELECT row FROM facets WHERE field = 0")


def register_functions(connection: sqlite3.Connection) -> None:
    """Give a connection the functions that filters call; do it once per connection.

    Args:
        connection: Any SQLite connection.
    """
    connection.create_function("hp_contains", 2, _contains, deterministic=True)
    connection.create_function("hp_contains_folded", 2, _contains_folded, deterministic=True)
    # Deterministic, so that a statement may keep its results.
    connection.create_function("hp_value", 1, json.loads, deterministic=True)


def _contains(value: bytes, part: bytes) -> bool:
    return part in value


def _contains_folded(value: bytes, folded: str) -> bool:
    return folded in value.decode("utf-8").casefold()


def is_complement(item: MetadataFilter) -> bool:
    """Return whether a condition holds for the rows that :func:`list_rows` does not list."""
    return item.operator in NEGATIVE or item.operator is FilterOperator.IS_EMPTY


def is_indexed(item: MetadataFilter | MetadataFilters) -> bool:
    """Return whether the index on values finds the first matches of a condition at once."""
    return (
        isinstance(item, MetadataFilter) and not is_complement(item) and item.operator not in _TEXTS
    )


def list_rows(item: MetadataFilter, schema: Mapping[str, FieldType]) -> Sql:
    """Return a SELECT of the rows where a condition holds.

    Args:
        item: A condition of a validated filter. For one of :func:`is_complement`, the rows where
            its opposite holds are listed.
        schema: Declared field types.

    Returns:
        A statement; a row whose list satisfies the condition twice comes twice.
    """
    value: Any = comparable(item, schema.get(item.key))
    start = f"SELECT f.row AS row FROM facets AS f WHERE {_FIELD} AND"
    if item.operator is FilterOperator.IS_EMPTY:
        return Sql(f"{start} {_IS_FILLED}", (item.key,))
    if item.operator is FilterOperator.ALL:
        if not value:
            return Sql("SELECT row FROM facets WHERE 0")
        first, *others = _distinct(value)
        checks = [_exists(item.key, "d.row", Sql("f.value = ?", (other,))) for other in others]
        return narrow(Sql(f"{start} f.value = ?", (item.key, first)), checks)
    test = _test(item.operator, value, "f.value")
    if item.operator in _TEXTS:
        # The function is called once per distinct text: LIMIT keeps it outside the DISTINCT.
        texts = f"SELECT DISTINCT f.value FROM facets AS f WHERE {_FIELD} AND {_IS_TEXT} LIMIT -1"
        test = Sql(
            f"f.value IN (SELECT f.value FROM ({texts}) AS f WHERE {test.text})",
            (item.key, *test.params),
        )
    return Sql(f"{start} {test.text}", (item.key, *test.params))


def narrow(listed: Sql, checks: Sequence[Sql]) -> Sql:
    """Return a SELECT of the listed rows that pass checks on ``d.row``."""
    if not checks:
        return listed
    passed = join(" AND ", checks)
    return Sql(
        f"SELECT d.row AS row FROM ({listed.text}) AS d WHERE {passed.text}",
        (*listed.params, *passed.params),
    )


def check_row(item: MetadataFilter | MetadataFilters, schema: Mapping[str, FieldType]) -> Sql:
    """Return a condition that says whether a filter holds for the row ``d.row``.

    Args:
        item: A validated condition or group; shallow, because SQLite limits nesting.
        schema: Declared field types.

    Returns:
        The condition, for :func:`narrow`.
    """
    if isinstance(item, MetadataFilter):
        return _check_leaf(item, schema)
    checks = [check_row(member, schema) for member in item.filters]
    if item.condition is FilterCondition.AND:
        return join(" AND ", checks, around="({})", empty="1")
    around = "NOT ({})" if item.condition is FilterCondition.NOT else "({})"
    return join(" OR ", checks, around=around, empty="0")


def _check_leaf(item: MetadataFilter, schema: Mapping[str, FieldType]) -> Sql:
    value: Any = comparable(item, schema.get(item.key))
    if item.operator is FilterOperator.IS_EMPTY:
        found = _exists(item.key, "d.row", Sql(_IS_FILLED))
        return Sql(f"NOT {found.text}", found.params)
    if item.operator is FilterOperator.ALL:
        each = [_exists(item.key, "d.row", Sql("f.value = ?", (one,))) for one in _distinct(value)]
        return join(" AND ", each, around="({})", empty="0")
    # The plus keeps SQLite from one seek per wanted value; a node has few values of a field.
    found = _exists(item.key, "d.row", _test(item.operator, value, "+f.value"))
    return Sql(f"NOT {found.text}", found.params) if item.operator in NEGATIVE else found


def _exists(key: str, row: str, test: Sql) -> Sql:
    return Sql(
        f"EXISTS (SELECT 1 FROM facets AS f WHERE f.row = {row} AND {_FIELD} AND {test.text})",
        (key, *test.params),
    )


def _test(operator: FilterOperator, value: Any, column: str) -> Sql:
    """Return a condition on one value of a field; negative operators give their positive one."""
    if operator in _COMPARISONS:
        bound = _IS_TEXT if isinstance(value, str) else "f.value < ''"
        return Sql(f"{bound} AND f.value {_COMPARISONS[operator]} ?", (value,))
    if operator is FilterOperator.TEXT_MATCH:
        return Sql(f"{_IS_TEXT} AND hp_contains({_BYTES}, ?)", (value.encode("utf-8"),))
    if operator is FilterOperator.TEXT_MATCH_INSENSITIVE:
        return Sql(f"{_IS_TEXT} AND hp_contains_folded({_BYTES}, ?)", (value.casefold(),))
    if isinstance(value, list):
        return _is_member(_distinct(value), column)
    return Sql("f.value = ?", (value,))


def _is_member(values: list[Scalar], column: str) -> Sql:
    if len(values) <= _MAX_INLINE:
        return Sql(f"{column} IN ({', '.join('?' * len(values))})", tuple(values))
    if all(isinstance(one, str) and one.isprintable() for one in values):
        listed = json.dumps(values, ensure_ascii=False)
        return Sql(f"{column} IN (SELECT value FROM json_each(?))", (listed,))
    # Each value is JSON inside JSON, so that Python alone reads numbers and control characters.
    listed = json.dumps([json.dumps(one) for one in values])
    return Sql(f"{column} IN (SELECT hp_value(value) FROM json_each(?))", (listed,))


def _distinct(values: Iterable[Scalar]) -> list[Scalar]:
    return list(dict.fromkeys(values))


def join(separator: str, pieces: Iterable[Sql], *, around: str = "{}", empty: str = "") -> Sql:
    """Join pieces and their parameters in order.

    Args:
        separator: What stands between two pieces.
        pieces: Pieces of SQL.
        around: What stands around the whole, with ``{}`` for it.
        empty: What stands for no pieces.

    Returns:
        One piece.
    """
    listed = list(pieces)
    text = separator.join(piece.text for piece in listed) or empty
    return Sql(around.format(text), tuple(param for piece in listed for param in piece.params))
