"""Evaluation of a filter over the facets table: which rows pass.

Single conditions are read from the index on values; groups are joined as bitmaps in numpy, so a
filter may nest and branch as far as ``validate_filters`` allows, which one SQL statement could
not. Where an AND has a condition that few rows pass, those rows alone are checked for the rest.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

import numpy as np
from llama_index.core.vector_stores.types import FilterCondition, MetadataFilter, MetadataFilters
from numpy.typing import NDArray

from llama_index_hybrid_pack.indexing.filters import sql
from llama_index_hybrid_pack.indexing.filters.fields import FieldType, check_schema
from llama_index_hybrid_pack.indexing.filters.validation import validate_filters

#: An AND checks row by row when one of its conditions passes at most this many rows: one check
#: costs about 1.4 microseconds, reading a condition's rows from the index about 0.12 each.
FEW_ROWS = 20_000
#: Groups deeper or larger than this are joined as bitmaps: SQLite's parser has limits.
_MAX_HEIGHT = 3
_MAX_CONDITIONS = 100

_Item = MetadataFilter | MetadataFilters


def select_rows(
    connection: sqlite3.Connection,
    filters: MetadataFilters | None,
    *,
    schema: Mapping[str, FieldType | str] | None = None,
) -> NDArray[np.int64]:
    """Return the rows whose metadata passes a filter.

    Args:
        connection: Connection with the tables of ``FACETS_DDL`` and ``register_functions``; open
            a transaction around the call if other statements must see the same state.
        filters: Any filter, nested or not; ``None`` selects every row.
        schema: Declared field types: the same as when the facets were written.

    Returns:
        Rows, shape ``(n,)``, rising, without repeats.

    Raises:
        FilterError: If the filter cannot be honoured.

    Example:
        >>> from llama_index_hybrid_pack.indexing.filters import FACETS_DDL, write_facets
        >>> connection = sqlite3.connect(":memory:")
        >>> _ = connection.executescript(FACETS_DDL)
        >>> sql.register_functions(connection)
        >>> write_facets(connection, [(1, {"tenant": "red"}), (2, {"tenant": "blue"}), (3, {})])
        >>> wish = MetadataFilter(key="tenant", value="red", operator="!=")
        >>> select_rows(connection, MetadataFilters(filters=[wish])).tolist()
        [2, 3]
    """
    checked = validate_filters(filters, schema=schema)
    evaluation = _Evaluation(connection, check_schema(schema))
    mask = evaluation.everything() if checked is None else evaluation.mask(checked)
    return np.flatnonzero(mask) + evaluation.first_row


class _Evaluation:
    """One evaluation; row sets are bitmaps from the oldest row's number to the newest's."""

    def __init__(self, connection: sqlite3.Connection, schema: Mapping[str, FieldType]) -> None:
        self._connection = connection
        self._schema = schema
        self._everything: NDArray[np.bool_] | None = None
        first, last = connection.execute(
            "SELECT (SELECT min(row) FROM facets), (SELECT max(row) FROM facets)"
        ).fetchone()
        self.first_row = 0 if first is None else int(first)
        self._size = 0 if last is None else int(last) - self.first_row + 1

    def everything(self) -> NDArray[np.bool_]:
        """Return every row."""
        if self._everything is None:
            self._everything = self._bitmap(sql.ALL_ROWS)
        return self._everything

    def mask(self, item: _Item) -> NDArray[np.bool_]:
        """Return the rows that pass."""
        found, opposite = self._signed(item)
        return self.everything() & ~found if opposite else found

    def _signed(self, item: _Item) -> tuple[NDArray[np.bool_], bool]:
        """Return the rows that pass, or those that do not and ``True``."""
        if isinstance(item, MetadataFilter):
            listed = self._bitmap(sql.list_rows(item, self._schema))
            return listed, sql.is_complement(item)
        if item.condition is FilterCondition.AND:
            return self._intersection(_flat(item)), False
        found = np.zeros(self._size, dtype=np.bool_)
        for member in item.filters:
            found |= self.mask(member)
        return found, item.condition is FilterCondition.NOT

    def _intersection(self, members: list[_Item]) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] | None = None
        driver = self._selective(members) if len(members) > 1 else None
        if driver is not None:
            checked, members = _split([member for member in members if member is not driver])
            checks = [sql.check_row(member, self._schema) for member in checked]
            listed = sql.list_rows(driver, self._schema)
            found = self._bitmap(sql.narrow(listed, checks))
        # Conditions that say what is in come first: then the list of all rows is not needed.
        for member in sorted(members, key=_is_opposite):
            if found is None:
                found = self.mask(member)
            elif not found.any():
                break
            else:
                mask, opposite = self._signed(member)
                found = found & ~mask if opposite else found & mask
        return self.everything() if found is None else found

    def _selective(self, members: Sequence[_Item]) -> MetadataFilter | None:
        """Return the condition that fewest rows pass, if those are few."""
        best, fewest = None, FEW_ROWS + 1
        for member in members:
            if isinstance(member, MetadataFilter) and sql.is_indexed(member):
                listed = sql.list_rows(member, self._schema)
                (count,) = self._connection.execute(
                    f"SELECT count(*) FROM ({listed.text} LIMIT ?)",  # noqa: S608 - own pieces
                    (*listed.params, fewest),
                ).fetchone()
                if count < fewest:
                    best, fewest = member, count
        return best

    def _bitmap(self, statement: sql.Sql) -> NDArray[np.bool_]:
        # One text of all numbers reaches numpy four times faster than one tuple per row.
        (text,) = self._connection.execute(
            f"SELECT group_concat(row) FROM ({statement.text})",  # noqa: S608 - own pieces
            statement.params,
        ).fetchone()
        mask = np.zeros(self._size, dtype=np.bool_)
        if text is not None:
            mask[np.fromstring(text, dtype=np.int64, sep=",") - self.first_row] = True
        return mask


def _flat(group: MetadataFilters) -> list[_Item]:
    """Return the members of an AND with those of ANDs inside it."""
    members: list[_Item] = []
    for item in group.filters:
        if isinstance(item, MetadataFilters) and item.condition is FilterCondition.AND:
            members.extend(_flat(item))
        else:
            members.append(item)
    return members


def _split(members: Sequence[_Item]) -> tuple[list[_Item], list[_Item]]:
    """Return the members that one statement can check, and the others."""
    checked: list[_Item] = []
    others: list[_Item] = []
    room = _MAX_CONDITIONS
    for member in members:
        height, conditions = _extent(member)
        if height <= _MAX_HEIGHT and conditions <= room:
            checked.append(member)
            room -= conditions
        else:
            others.append(member)
    return checked, others


def _is_opposite(item: _Item) -> bool:
    if isinstance(item, MetadataFilter):
        return sql.is_complement(item)
    return item.condition is FilterCondition.NOT


def _extent(item: _Item) -> tuple[int, int]:
    """Return how many levels of groups and how many conditions an item has."""
    if isinstance(item, MetadataFilter):
        return 0, 1
    extents = [_extent(member) for member in item.filters]
    return (
        1 + max((height for height, _ in extents), default=0),
        sum(conditions for _, conditions in extents),
    )
