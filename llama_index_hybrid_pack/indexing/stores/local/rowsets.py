"""Which rows a search may return: the filter as rows of the table, remembered per generation."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, TypeVar

import numpy as np
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from numpy.typing import NDArray

from llama_index_hybrid_pack.indexing.filters import Schema, select_rows, validate_filters
from llama_index_hybrid_pack.indexing.stores.local.prefilter import FacetTest, facet_test
from llama_index_hybrid_pack.indexing.stores.local.table import Generation, Snapshot

T = TypeVar("T")
S = TypeVar("S")

#: Row sets remembered, and rows in all of them together.
_MOST_SETS = 64
_MOST_ROWS = 8_000_000


class RowSet:
    """Rows that pass, in rising order, and a quicker test that all of them pass."""

    def __init__(self, rows: NDArray[np.int64], facets: FacetTest | None = None) -> None:
        self.rows = rows
        self.facets = facets
        self._derived: tuple[weakref.ref[object], Any] | None = None

    def derived(self, owner: T, make: Callable[[NDArray[np.int64]], S]) -> S:
        """Return what an index made of the rows, made once as long as the index is the same.

        Args:
            owner: The index at one generation.
            make: Makes it.
        """
        kept = self._derived
        if kept is not None and kept[0]() is owner:
            value: S = kept[1]
            return value
        value = make(self.rows)
        self._derived = (weakref.ref(owner), value)
        return value


class RowSets:
    """Turns filters and id lists into rows; safe to share between threads."""

    def __init__(self, *, refuse_unknown: bool) -> None:
        self._refuse_unknown = refuse_unknown
        self._lock = threading.Lock()
        self._generation: Generation | None = None
        self._fields: frozenset[str] | None = None
        self._sets: OrderedDict[Any, RowSet] = OrderedDict()
        self._rows = 0

    def fields(self, snapshot: Snapshot, schema: Schema) -> frozenset[str]:
        """Return the fields that some node has or the schema declares."""
        with self._lock:
            self._turn(snapshot.generation)
            fields = self._fields
        if fields is None:
            fields = snapshot.fields() | schema.keys()
            with self._lock:
                if self._generation == snapshot.generation:
                    self._fields = fields
        return fields

    def of(
        self,
        snapshot: Snapshot,
        schema: Schema,
        *,
        filters: MetadataFilters | None = None,
        node_ids: Sequence[str] | None = None,
        doc_ids: Sequence[str] | None = None,
    ) -> RowSet | None:
        """Return the rows that pass everything, or ``None`` when nothing is asked for.

        Raises:
            FilterError: If the filter cannot be honoured.
        """
        known = None
        if filters is not None and self._refuse_unknown and snapshot.count:
            known = self.fields(snapshot, schema)
        checked = validate_filters(filters, known_fields=known, schema=schema)
        if checked is None and node_ids is None and doc_ids is None:
            return None
        key = (
            None if checked is None else _key(checked),
            None if node_ids is None else frozenset(node_ids),
            None if doc_ids is None else frozenset(doc_ids),
        )
        with self._lock:
            self._turn(snapshot.generation)
            found = self._sets.get(key)
            if found is not None:
                self._sets.move_to_end(key)
                return found
        rows = _select(snapshot, schema, checked, node_ids, doc_ids)
        found = RowSet(rows, facet_test(checked, schema))
        with self._lock:
            self._keep(snapshot.generation, key, found)
        return found

    def _turn(self, generation: Generation) -> None:
        """Forget what belongs to another generation."""
        if self._generation != generation:
            self._generation = generation
            self._fields = None
            self._sets.clear()
            self._rows = 0

    def _keep(self, generation: Generation, key: Any, found: RowSet) -> None:
        if self._generation != generation or len(found.rows) > _MOST_ROWS:
            return
        replaced = self._sets.pop(key, None)
        self._rows += len(found.rows) - (0 if replaced is None else len(replaced.rows))
        self._sets[key] = found
        while len(self._sets) > _MOST_SETS or self._rows > _MOST_ROWS:
            _, dropped = self._sets.popitem(last=False)
            self._rows -= len(dropped.rows)


def _select(
    snapshot: Snapshot,
    schema: Schema,
    filters: MetadataFilters | None,
    node_ids: Sequence[str] | None,
    doc_ids: Sequence[str] | None,
) -> NDArray[np.int64]:
    found: list[NDArray[np.int64]] = []
    if filters is not None:
        found.append(select_rows(snapshot.connection, filters, schema=schema))
    for column, values in (("node_id", node_ids), ("doc_id", doc_ids)):
        if values is not None:
            found.append(np.array(sorted(snapshot.rows_of(column, values)), dtype=np.int64))
    return reduce(partial(np.intersect1d, assume_unique=True), found)


def _key(item: MetadataFilters | MetadataFilter) -> Any:
    if isinstance(item, MetadataFilter):
        # repr tells the text "1" from the number 1, and is fixed for lists too.
        return (item.key, item.operator, repr(item.value))
    return (item.condition, tuple(_key(member) for member in item.filters))
