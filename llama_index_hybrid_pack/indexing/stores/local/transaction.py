"""One write to the table: rows out, rows in, and one more generation."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llama_index_hybrid_pack.indexing.filters import (
    Schema,
    delete_facets,
    facets_fingerprint,
    write_facets,
)
from llama_index_hybrid_pack.indexing.stores.local.records import Record
from llama_index_hybrid_pack.indexing.stores.local.table import Generation, Snapshot


class Transaction:
    """An open write; nothing of it shows before it is committed."""

    def __init__(self, connection: sqlite3.Connection, schema: Schema) -> None:
        self.snapshot = Snapshot(connection)
        self.connection = connection
        self.first_row = self.snapshot.last_row + 1
        self.last_row = self.snapshot.last_row
        self.generation = Generation(self.snapshot.generation.number + 1, uuid.uuid4().hex)
        self.changed = False
        self._schema = schema
        self._nodes = self.snapshot.count

    @property
    def added(self) -> int:
        """Number of rows that were inserted."""
        return self.last_row - self.first_row + 1

    def insert(self, records: Sequence[Record]) -> range:
        """Insert nodes whose ids are not in the table; returns their rows."""
        rows = range(self.last_row + 1, self.last_row + 1 + len(records))
        execute = self.connection.executemany
        execute(
            "INSERT INTO nodes (row, node_id, doc_id) VALUES (?, ?, ?)",
            (
                (row, record.node_id, record.doc_id)
                for row, record in zip(rows, records, strict=True)
            ),
        )
        execute(
            "INSERT INTO payloads (row, node) VALUES (?, ?)",
            ((row, record.payload) for row, record in zip(rows, records, strict=True)),
        )
        execute(
            "INSERT INTO vectors (row, vector) VALUES (?, ?)",
            ((row, record.vector) for row, record in zip(rows, records, strict=True)),
        )
        write_facets(
            self.connection,
            ((row, record.metadata) for row, record in zip(rows, records, strict=True)),
            schema=self._schema,
        )
        self.last_row += len(records)
        self._nodes += len(records)
        self.changed = self.changed or bool(records)
        return rows

    def remove(self, rows: Sequence[int]) -> None:
        """Remove rows that are in the table."""
        execute = self.connection.executemany
        execute(
            "INSERT INTO removed (generation, row) VALUES (?, ?)",
            ((self.generation.number, row) for row in rows),
        )
        for table in ("nodes", "payloads", "vectors"):
            execute(f"DELETE FROM {table} WHERE row = ?", ((row,) for row in rows))  # noqa: S608
        delete_facets(self.connection, rows)
        self._nodes -= len(rows)
        self.changed = self.changed or bool(rows)

    def set_meta(self, key: str, value: str) -> None:
        """Write one setting, as JSON text."""
        self.connection.execute(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (key, value),
        )
        self.changed = True

    def rewrite_facets(
        self, nodes: Iterable[tuple[int, Mapping[str, Any]]], schema: Schema
    ) -> None:
        """Replace all facets by those of the given rows and metadata."""
        self.connection.execute("DELETE FROM facets")
        write_facets(self.connection, nodes, schema=schema)
        self.set_meta("facets", json.dumps(facets_fingerprint(schema)))

    def forget_history(self) -> None:
        """Drop the log of earlier generations; an index of one of them must be built anew."""
        self.connection.execute("DELETE FROM removed")
        self.connection.execute("DELETE FROM changes")
        self.changed = True

    def log(self) -> None:
        """Write the line of this generation."""
        self.connection.execute(
            "INSERT INTO changes VALUES (?, ?, ?, ?)",
            (*self.generation, self.last_row, self._nodes),
        )

    def commit(self) -> None:
        """Make the write durable and visible."""
        self.connection.execute("COMMIT")
