# ruff: noqa: S608 - the pieces of SQL are constants; what a caller gives is always a parameter
"""A filter as one parameterised SQLite statement over the facets table.

How a statement is put together: one *driver* lists rows that can match, by the index on values;
every other condition is checked per row by one seek in the clustered table. An OR is the union of
its members' statements. Where nothing positive can drive (NOT, ``!=``), field 0 lists every row.
Field names and values are only ever parameters.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_index_hybrid_pack.indexing.filters.fields import FieldType, Scalar, check_schema
from llama_index_hybrid_pack.indexing.filters.semantics import comparable
from llama_index_hybrid_pack.indexing.filters.validation import validate_filters


class CompiledFilter(NamedTuple):
    """A statement that yields the matching ``row`` integers, each once, in no set order."""

    sql: str
    params: tuple[Scalar, ...]


class _Sql(NamedTuple):
    """A piece of SQL with the parameters of its question marks."""

    text: str
    params: tuple[Scalar, ...] = ()


#: Lists up to this length are single parameters; longer ones travel as one JSON text.
_MAX_INLINE = 50

_FIELD = "(SELECT field FROM fields WHERE name = ?)"
_ALL_ROWS = _Sql("SELECT row FROM facets WHERE field = 0")
_NOTHING = _Sql("SELECT row FROM facets WHERE 0")
_ORDERINGS = {
    FilterOperator.GT: ">",
    FilterOperator.GTE: ">=",
    FilterOperator.LT: "<",
    FilterOperator.LTE: "<=",
}
_POSITIVE = {FilterOperator.NE: FilterOperator.EQ, FilterOperator.NIN: FilterOperator.IN}
#: How few rows an operator lets pass, as far as that can be said without statistics.
_COST = {
    FilterOperator.EQ: 0,
    FilterOperator.CONTAINS: 0,
    FilterOperator.ALL: 0,
    FilterOperator.IN: 1,
    FilterOperator.ANY: 1,
    FilterOperator.TEXT_MATCH: 3,
    FilterOperator.TEXT_MATCH_INSENSITIVE: 3,
}


def register_functions(connection: sqlite3.Connection) -> None:
    """Give a connection the functions that compiled filters call; do it once per connection.

    Args:
        connection: Any SQLite connection.
    """
    connection.create_function("hp_contains", 2, _contains, deterministic=True)
    connection.create_function("hp_contains_folded", 2, _contains_folded, deterministic=True)
    connection.create_function("hp_value", 1, _decode, deterministic=True)


def compile_sql(
    filters: MetadataFilters | None,
    *,
    schema: Mapping[str, FieldType | str] | None = None,
) -> CompiledFilter:
    """Compile a filter to one SELECT over the tables of :data:`~.facets.FACETS_DDL`.

    Args:
        filters: Any filter, nested or not; ``None`` selects every row.
        schema: Declared field types: the same as when the facets were written.

    Returns:
        Statement and parameters; the connection needs :func:`register_functions`.

    Raises:
        FilterError: If the filter cannot be honoured.

    Example:
        >>> wish = MetadataFilters(filters=[MetadataFilter(key="tenant", value="red")])
        >>> compile_sql(wish).params
        ('tenant', 'red')
    """
    checked = validate_filters(filters, schema=schema)
    if checked is None:
        return CompiledFilter(*_ALL_ROWS)
    return CompiledFilter(*_Compiler(check_schema(schema)).select(checked))


class _Compiler:
    def __init__(self, schema: Mapping[str, FieldType]) -> None:
        self._schema = schema

    def select(self, item: MetadataFilter | MetadataFilters) -> _Sql:
        """Return a SELECT of the rows that match."""
        if isinstance(item, MetadataFilter):
            return self._select_leaf(item)
        if item.condition is FilterCondition.OR:
            if not item.filters:
                return _NOTHING
            return _join(" UNION ", [_wrap(self.select(member)) for member in item.filters])
        if item.condition is FilterCondition.NOT:
            return self._select_where(_ALL_ROWS, [self._check(item)])
        members = sorted(item.filters, key=_cost)
        driver = self.select(members[0]) if _drives(members[0]) else _ALL_ROWS
        rest = members[1:] if _drives(members[0]) else members
        if not rest:
            return driver
        return self._select_where(driver, [self._check(member) for member in rest])

    @staticmethod
    def _select_where(driver: _Sql, checks: list[_Sql]) -> _Sql:
        source = _Sql(f"SELECT d.row FROM ({driver.text}) AS d WHERE ", driver.params)
        return _concat([source, _join(" AND ", checks)])

    def _select_leaf(self, item: MetadataFilter) -> _Sql:
        if not _drives(item):
            return self._select_where(_ALL_ROWS, [self._check(item)])
        test = self._test(item)
        if test is None:
            return _NOTHING
        if item.operator is FilterOperator.ALL:
            first, *others = _distinct(comparable(item, self._schema.get(item.key)))
            driver = _Sql(
                f"SELECT row FROM facets WHERE field = {_FIELD} AND value = ?", (item.key, first)
            )
            checks = [self._exists(item.key, _Sql("f.value = ?", (value,))) for value in others]
            return self._select_where(driver, checks) if checks else driver
        if item.operator in (FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE):
            # The function is called once per distinct text: LIMIT keeps it outside the DISTINCT.
            texts = _Sql(
                f"SELECT DISTINCT value FROM facets WHERE field = {_FIELD} "
                "AND value >= '' AND value < x'' LIMIT -1",
                (item.key,),
            )
            return _concat(
                [
                    _Sql(f"SELECT DISTINCT row FROM facets WHERE field = {_FIELD}", (item.key,)),
                    _Sql(f" AND value IN (SELECT f.value FROM ({texts.text}) AS f", texts.params),
                    _Sql(f" WHERE {test.text})", test.params),
                ]
            )
        once = "" if item.operator in (FilterOperator.EQ, FilterOperator.CONTAINS) else "DISTINCT "
        return _concat(
            [
                _Sql(f"SELECT {once}row FROM facets AS f WHERE field = {_FIELD} AND ", (item.key,)),
                test,
            ]
        )

    def _check(self, item: MetadataFilter | MetadataFilters) -> _Sql:
        """Return a condition on the row ``d.row``."""
        if isinstance(item, MetadataFilter):
            return self._check_leaf(item)
        if not item.filters:
            return _Sql("0" if item.condition is FilterCondition.OR else "1")
        checks = [self._check(member) for member in item.filters]
        if item.condition is FilterCondition.AND:
            return _wrap_condition(_join(" AND ", checks))
        either = _wrap_condition(_join(" OR ", checks))
        if item.condition is FilterCondition.OR:
            return either
        return _Sql(f"NOT {either.text}", either.params)

    def _check_leaf(self, item: MetadataFilter) -> _Sql:
        if item.operator is FilterOperator.IS_EMPTY:
            filled = self._exists(item.key, _Sql("f.value <> '' AND f.value <> x'00'"))
            return _Sql(f"NOT {filled.text}", filled.params)
        if item.operator is FilterOperator.ALL:
            wanted = _distinct(comparable(item, self._schema.get(item.key)))
            each = [self._exists(item.key, _Sql("f.value = ?", (value,))) for value in wanted]
            return _wrap_condition(_join(" AND ", each)) if each else _Sql("0")
        test = self._test(item)
        negative = item.operator in _POSITIVE
        if test is None:
            return _Sql("1" if negative else "0")
        found = self._exists(item.key, test)
        return _Sql(f"NOT {found.text}", found.params) if negative else found

    @staticmethod
    def _exists(key: str, test: _Sql) -> _Sql:
        return _Sql(
            "EXISTS (SELECT 1 FROM facets AS f WHERE f.row = d.row "
            f"AND f.field = {_FIELD} AND {test.text})",
            (key, *test.params),
        )

    def _test(self, item: MetadataFilter) -> _Sql | None:
        """Return a condition on ``f.value``, or ``None`` when no value can satisfy it."""
        value: Any = comparable(item, self._schema.get(item.key))
        operator = _POSITIVE.get(item.operator, item.operator)
        if isinstance(value, list):
            return _member(_distinct(value)) if value else None
        if operator in _ORDERINGS:
            compare = f"f.value {_ORDERINGS[operator]} ?"
            if isinstance(value, str):
                return _Sql(f"f.value >= '' AND f.value < x'' AND {compare}", (value,))
            return _Sql(f"f.value < '' AND {compare}", (value,))
        if operator is FilterOperator.TEXT_MATCH:
            return _Sql(f"{_TEXT} AND hp_contains({_BYTES}, ?)", (value,))
        if operator is FilterOperator.TEXT_MATCH_INSENSITIVE:
            return _Sql(f"{_TEXT} AND hp_contains_folded({_BYTES}, ?)", (value.casefold(),))
        return _Sql("f.value = ?", (value,))


_TEXT = "f.value >= '' AND f.value < x''"
_BYTES = "CAST(f.value AS BLOB)"


def _drives(item: MetadataFilter | MetadataFilters) -> bool:
    """Return whether the index on values can list a superset of the matches."""
    if isinstance(item, MetadataFilter):
        return item.operator not in (
            FilterOperator.NE,
            FilterOperator.NIN,
            FilterOperator.IS_EMPTY,
        )
    if item.condition is FilterCondition.OR:
        return all(_drives(member) for member in item.filters)
    if item.condition is FilterCondition.AND:
        return any(_drives(member) for member in item.filters)
    return False


def _cost(item: MetadataFilter | MetadataFilters) -> int:
    if not _drives(item):
        return 9
    if isinstance(item, MetadataFilter):
        return _COST.get(item.operator, 2)
    costs = [_cost(member) for member in item.filters]
    if item.condition is FilterCondition.AND:
        return min(costs)
    return max(costs, default=0) + 1


def _distinct(values: Iterable[Scalar]) -> list[Scalar]:
    return list(dict.fromkeys(values))


def _member(values: list[Scalar]) -> _Sql:
    if len(values) <= _MAX_INLINE:
        marks = ", ".join("?" * len(values))
        return _Sql(f"f.value IN ({marks})", tuple(values))
    listed = json.dumps([_encode(value) for value in values])
    return _Sql("f.value IN (SELECT hp_value(value) FROM json_each(?))", (listed,))


def _encode(value: Scalar) -> str:
    """Write a value as JSON text inside JSON, so that SQLite parses no number and no NUL itself."""
    return json.dumps(value)


def _decode(text: str) -> Scalar:
    value: Scalar = json.loads(text)
    return value


def _contains(value: bytes, part: str) -> bool:
    return part in value.decode("utf-8")


def _contains_folded(value: bytes, folded: str) -> bool:
    return folded in value.decode("utf-8").casefold()


def _concat(pieces: Iterable[_Sql]) -> _Sql:
    return _join("", pieces)


def _join(separator: str, pieces: Iterable[_Sql]) -> _Sql:
    listed = list(pieces)
    return _Sql(
        separator.join(piece.text for piece in listed),
        tuple(param for piece in listed for param in piece.params),
    )


def _wrap(select: _Sql) -> _Sql:
    return _Sql(f"SELECT row FROM ({select.text})", select.params)


def _wrap_condition(condition: _Sql) -> _Sql:
    return _Sql(f"({condition.text})", condition.params)
