"""The SQLite table: the one truth of the embedded store, from which the indexes are derived.

Every change is one transaction that adds one line to ``changes``: the generation, a random token
(two histories that share a number are told apart by it), the highest row ever given and the
number of nodes. ``removed`` keeps the rows that each generation took away, so that an index can
follow. Rows are given once and never again, in rising order: what an index lacks are the rows
above its last one and what ``removed`` names. Nodes and vectors stand in tables of their own, so
that the ids, which every search looks up, stay close together.

The journal is a write-ahead log and ``synchronous`` is FULL: a write that has returned survives
a killed process and a power cut, on a file system that honours fsync. Not for network drives,
where SQLite's log does not work.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from llama_index_hybrid_pack.errors import StoreError, StoreVersionError
from llama_index_hybrid_pack.indexing.filters import (
    FACETS_DDL,
    register_functions,
    stored_fields,
)
from llama_index_hybrid_pack.indexing.stores.local.files import size_of, sync_folder
from llama_index_hybrid_pack.indexing.stores.local.records import is_storable_id

FILE_NAME = "store.db"
#: Marks the database as ours (``PRAGMA application_id``): the letters LHPK.
APPLICATION_ID = 0x4C48504B
#: Grows with every change that an older version of this package could not read.
FORMAT_VERSION = 1

_DDL = (
    """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE nodes (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    node_id TEXT NOT NULL UNIQUE,
    doc_id TEXT
);
CREATE INDEX nodes_by_doc ON nodes (doc_id) WHERE doc_id IS NOT NULL;
CREATE TABLE payloads (row INTEGER PRIMARY KEY, node BLOB NOT NULL);
CREATE TABLE vectors (row INTEGER PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE changes (
    generation INTEGER PRIMARY KEY,
    token TEXT NOT NULL,
    last_row INTEGER NOT NULL,
    nodes INTEGER NOT NULL
);
CREATE TABLE removed (
    generation INTEGER NOT NULL,
    row INTEGER NOT NULL,
    PRIMARY KEY (generation, row)
) WITHOUT ROWID;
"""
    + FACETS_DDL
)

_NODES = "SELECT node_id, node, NULL FROM nodes JOIN payloads USING (row)"
_NODES_WITH_VECTORS = (
    "SELECT node_id, node, vector FROM nodes JOIN payloads USING (row) JOIN vectors USING (row)"
)
#: Connections kept open for the next reader.
_KEEP = 8


class Generation(NamedTuple):
    """One committed state of the table."""

    number: int
    token: str


class Table:
    """Connections to the database; safe to share between threads."""

    def __init__(self, folder: Path, *, read_only: bool) -> None:
        self.folder = folder
        self.path = folder / FILE_NAME
        self._read_only = read_only
        self._idle: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        self._closed = False

    def _has_log(self) -> bool:
        log = self.folder / f"{FILE_NAME}-wal"
        return log.exists() and log.stat().st_size > 0

    def connect(self) -> sqlite3.Connection:
        """Open one more connection to an existing database."""
        mode = "ro" if self._read_only else "rw"
        # as_uri() escapes what is special in a URI, such as "?" and "%".
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        if self._read_only and not self._has_log() and not os.access(self.folder, os.W_OK):
            # SQLite wants to make a shared-memory file beside the database, and cannot here.
            # Nobody can write to the folder, so the database does not change.
            uri += "&immutable=1"
        connection = sqlite3.connect(
            uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10.0
        )
        try:
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA temp_store=MEMORY")
            connection.execute("PRAGMA cache_size=-16000")
            connection.execute("PRAGMA journal_size_limit=67108864")
            register_functions(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection; it comes back with no transaction open."""
        with self._guard:
            if self._closed:
                msg = f"The store at {str(self.folder)!r} is closed. Open it again."
                raise StoreError(msg)
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self.connect()
        try:
            yield connection
        finally:
            self._give_back(connection)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        usable = True
        try:
            if connection.in_transaction:
                connection.rollback()
        except sqlite3.Error:
            usable = False
        with self._guard:
            if usable and not self._closed and len(self._idle) < _KEEP:
                self._idle.append(connection)
                return
        connection.close()

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Read one committed state; later commits do not show in it."""
        with self.connection() as connection:
            connection.execute("BEGIN")
            yield Snapshot(connection)

    def size(self) -> int:
        """Return the bytes on disk, log included."""
        return size_of(self.folder.glob(f"{FILE_NAME}*"))

    def close(self) -> None:
        """Close every idle connection; the last one folds the log into the database file."""
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def compact(self) -> None:
        """Give free pages back and fold the log into the database; the lock must be held."""
        with self.connection() as connection:
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            free = connection.execute("PRAGMA freelist_count").fetchone()[0]
            if free > 0.1 * pages:
                connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def create(self, settings: dict[str, Any]) -> None:
        """Make the database, or finish one whose making was cut short; the lock must be held."""
        connection = sqlite3.connect(self.path, isolation_level=None)
        try:
            if connection.execute("PRAGMA user_version").fetchone()[0]:
                return
            connection.execute("PRAGMA page_size=8192")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("BEGIN IMMEDIATE")
            for statement in _DDL.split(";"):
                connection.execute(statement)
            start = {"store_id": uuid.uuid4().hex, **settings}
            connection.executemany(
                "INSERT INTO meta VALUES (?, ?)",
                [(key, json.dumps(value)) for key, value in start.items()],
            )
            connection.execute("INSERT INTO changes VALUES (0, ?, 0, 0)", (uuid.uuid4().hex,))
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")
            connection.execute("COMMIT")
        finally:
            connection.close()
        sync_folder(self.folder)

    def check(self) -> bool:
        """Return whether the database is complete; refuse a foreign or newer one."""
        with self.connection() as connection:
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not application and not version and not tables:
            return False
        if application != APPLICATION_ID:
            msg = (
                f"{str(self.path)!r} is a database of another program. Choose another folder for "
                "the store."
            )
            raise StoreError(msg)
        if version > FORMAT_VERSION:
            msg = (
                f"The store at {str(self.folder)!r} has format {version}; this version of "
                f"llama-index-hybrid-pack reads up to {FORMAT_VERSION}. Install a newer version."
            )
            raise StoreVersionError(msg)
        return True


class Snapshot:
    """One committed state of the table, seen by one thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        number, token, last_row, count = connection.execute(
            "SELECT generation, token, last_row, nodes FROM changes "
            "ORDER BY generation DESC LIMIT 1"
        ).fetchone()
        self.generation = Generation(number, token)
        self.last_row = int(last_row)
        self.count = int(count)

    def settings(self) -> dict[str, Any]:
        """Return everything in ``meta``."""
        found = self.connection.execute("SELECT key, value FROM meta")
        return {key: json.loads(value) for key, value in found}

    def last_row_of(self, generation: Generation) -> int | None:
        """Return the last row of an earlier generation, ``None`` if it is not in the log."""
        found = self.connection.execute(
            "SELECT last_row FROM changes WHERE generation = ? AND token = ?", generation
        ).fetchone()
        return None if found is None else int(found[0])

    def removed_after(self, number: int) -> NDArray[np.int64]:
        """Return the rows removed by generations above ``number`` up to this one, rising."""
        # The upper bound matters inside a write, whose own removals are not committed yet.
        return _column(
            self.connection.execute(
                "SELECT row FROM removed WHERE generation > ? AND generation <= ? ORDER BY row",
                (number, self.generation.number),
            )
        )

    def removals_after(self, number: int) -> int:
        """Return how many rows the generations above ``number`` removed."""
        found = self.connection.execute(
            "SELECT count(*) FROM removed WHERE generation > ?", (number,)
        ).fetchone()
        return int(found[0])

    def rows_after(self, row: int) -> NDArray[np.int64]:
        """Return the rows above ``row``, in rising order."""
        return _column(
            self.connection.execute("SELECT row FROM nodes WHERE row > ? ORDER BY row", (row,))
        )

    def node_ids(self, rows: Sequence[int]) -> dict[int, str]:
        """Return the node ids of those rows that exist."""
        return dict(self._by_rows("SELECT row, node_id FROM nodes WHERE row", rows))

    def vectors(self, rows: Sequence[int]) -> dict[int, bytes]:
        """Return the vectors of those rows that exist, as they were given."""
        return dict(self._by_rows("SELECT row, vector FROM vectors WHERE row", rows))

    def nodes(
        self, rows: Sequence[int], *, with_vectors: bool = False
    ) -> Iterator[tuple[str, bytes, bytes | None]]:
        """Yield node id, stored node and vector of those rows that exist, by rising row."""
        select = _NODES_WITH_VECTORS if with_vectors else _NODES
        for start in range(0, len(rows), 1000):
            part = ",".join(map(str, rows[start : start + 1000]))
            yield from self.connection.execute(
                f"{select} WHERE nodes.row IN ({part}) ORDER BY nodes.row"
            )

    def by_node_ids(
        self, node_ids: Sequence[str], *, with_vectors: bool = False
    ) -> dict[str, tuple[bytes, bytes | None]]:
        """Return stored node and vector by node id; unknown ids are left out."""
        rows = sorted(self.rows_of("node_id", node_ids))
        return {
            node_id: (payload, vector)
            for node_id, payload, vector in self.nodes(rows, with_vectors=with_vectors)
        }

    def rows_of(self, column: str, values: Sequence[str]) -> dict[int, str]:
        """Return row → value for the rows whose ``node_id`` or ``doc_id`` is among the values."""
        listed = json.dumps([value for value in values if is_storable_id(value)])
        return dict(
            self.connection.execute(
                f"SELECT row, {column} FROM nodes WHERE {column} IN "  # noqa: S608 - own names
                "(SELECT value FROM json_each(?))",
                (listed,),
            )
        )

    def fields(self) -> frozenset[str]:
        """Return the metadata fields that some node has."""
        return stored_fields(self.connection)

    def _by_rows(self, select: str, rows: Sequence[int]) -> Iterator[Any]:
        # Whole numbers are safe inside the statement, and read faster than parameters.
        for start in range(0, len(rows), 1000):
            part = ",".join(map(str, rows[start : start + 1000]))
            yield from self.connection.execute(f"{select} IN ({part})")


def _column(select: sqlite3.Cursor) -> NDArray[np.int64]:
    return np.fromiter((row for (row,) in select), dtype=np.int64)
