"""The table of filterable values in the embedded store.

For the store: run :data:`FACETS_DDL` with your own tables; call :func:`write_facets` for every
node that is written and :func:`delete_facets` for every row that goes, in the same transaction.
The ``row`` integers are the store's. Record :func:`facets_fingerprint` beside the data; when it
differs at opening, the facets were written by other rules or another schema: ``DELETE FROM
facets`` and write them anew from the stored metadata.

Layout: one row per node, field and value. ``value`` has no type affinity, so SQLite keeps numbers
as numbers and texts as texts (all numbers sort before all texts, all texts before all blobs).
The table is clustered by node (a check of one node is one seek, a delete needs no further index);
the index ``facets_by_value`` covers every search by value. Two blobs mark a field that has no
comparable value: ``x'00'`` an empty one, ``x'01'`` one that is there but cannot be compared. Field
0 is present for every node: it lists all rows without touching the node table.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from llama_index_hybrid_pack.indexing.filters.fields import (
    FieldType,
    Scalar,
    check_schema,
    faces,
    is_empty,
    is_text,
)
from llama_index_hybrid_pack.indexing.filters.validation import RESERVED_PREFIX

#: Statements that create the tables; safe to run again.
FACETS_DDL = """
CREATE TABLE IF NOT EXISTS fields (
    field INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);
CREATE TABLE IF NOT EXISTS facets (
    row INTEGER NOT NULL,
    field INTEGER NOT NULL,
    value NOT NULL,
    PRIMARY KEY (row, field, value)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS facets_by_value ON facets (field, value);
"""

#: Grows with every change of what :func:`facets` gives for the same metadata.
FACETS_VERSION = 1
#: Value of a field that is there but empty (``None``, ``[]``).
EMPTY = b"\x00"
#: Value of a field that is there but holds nothing comparable (a dict).
OPAQUE = b"\x01"

#: What stands in the column ``value``.
FacetValue = Scalar | bytes


def facets(
    metadata: Mapping[str, Any], *, schema: Mapping[str, FieldType | str] | None = None
) -> list[tuple[str, FacetValue]]:
    r"""Return the filterable values of a node as (field, value) pairs.

    Args:
        metadata: The node's metadata; it is not changed.
        schema: Declared field types.

    Returns:
        At least one pair per field: one per distinct value, or a marker blob where there is
        none. Fields of this package's own records are left out.

    Example:
        >>> facets({"year": 2024, "tags": ["red", "blue"], "note": None})
        [('year', 2024), ('tags', 'red'), ('tags', 'blue'), ('note', b'\x00')]
    """
    return _facets(metadata, check_schema(schema))


def _facets(
    metadata: Mapping[str, Any], schema: Mapping[str, FieldType]
) -> list[tuple[str, FacetValue]]:
    pairs: list[tuple[str, FacetValue]] = []
    for key, value in metadata.items():
        name = str(key)  # JSON turns every key into text
        if name.startswith(RESERVED_PREFIX) or not is_text(name):
            continue
        found = faces(value, schema.get(name))
        pairs.extend((name, face) for face in found)
        if is_empty(value):
            if not found:
                pairs.append((name, EMPTY))
        elif not found or found == ("",):
            pairs.append((name, OPAQUE))  # [""] and {} are not empty, as in LlamaIndex
    return pairs


def facets_fingerprint(schema: Mapping[str, FieldType | str] | None = None) -> str:
    """Return a short text that changes when facets written before no longer hold.

    Args:
        schema: Declared field types.

    Returns:
        A hexadecimal digest of the rules' version and the schema.
    """
    types = {name: kind.value for name, kind in check_schema(schema).items()}
    text = json.dumps([FACETS_VERSION, sorted(types.items())])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def write_facets(
    connection: sqlite3.Connection,
    nodes: Iterable[tuple[int, Mapping[str, Any]]],
    *,
    schema: Mapping[str, FieldType | str] | None = None,
) -> None:
    """Write the facets of new rows; opens and commits no transaction of its own.

    Args:
        connection: Connection to a database with the tables of :data:`FACETS_DDL`.
        nodes: Pairs of row and metadata; a row must have no facets yet.
        schema: Declared field types.
    """
    types = check_schema(schema)
    ids: dict[str, int] = dict(connection.execute("SELECT name, field FROM fields"))

    def rows() -> Iterable[tuple[int, int, FacetValue]]:
        for row, metadata in nodes:
            yield row, 0, 0
            for name, value in _facets(metadata, types):
                field = ids.get(name)
                if field is None:
                    cursor = connection.execute("INSERT INTO fields (name) VALUES (?)", (name,))
                    field = ids[name] = int(cursor.lastrowid or 0)
                yield row, field, value

    connection.executemany("INSERT INTO facets (row, field, value) VALUES (?, ?, ?)", rows())


def delete_facets(connection: sqlite3.Connection, rows: Iterable[int]) -> None:
    """Remove the facets of rows; opens and commits no transaction of its own.

    Args:
        connection: Connection to a database with the tables of :data:`FACETS_DDL`.
        rows: Rows to remove; unknown ones are no error.
    """
    connection.executemany("DELETE FROM facets WHERE row = ?", ((row,) for row in rows))


def stored_fields(connection: sqlite3.Connection) -> frozenset[str]:
    """Return every field that at least one stored node has.

    Args:
        connection: Connection to a database with the tables of :data:`FACETS_DDL`.

    Returns:
        Field names; fields whose last node was deleted are not among them.
    """
    found = connection.execute(
        "SELECT name FROM fields AS f WHERE EXISTS "
        "(SELECT 1 FROM facets WHERE facets.field = f.field)"
    )
    return frozenset(name for (name,) in found)
