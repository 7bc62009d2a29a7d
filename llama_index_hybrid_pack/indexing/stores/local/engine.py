"""The table and its two indexes as one thing: consistent views for readers, safe writes."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llama_index_hybrid_pack.errors import StoreError, StoreWriteError
from llama_index_hybrid_pack.indexing.stores.local.change import Change
from llama_index_hybrid_pack.indexing.stores.local.dense import DenseIndex
from llama_index_hybrid_pack.indexing.stores.local.failures import translated, write_failed
from llama_index_hybrid_pack.indexing.stores.local.follower import INDEX_ERRORS, LexicalFollower
from llama_index_hybrid_pack.indexing.stores.local.inverted import InvertedFile
from llama_index_hybrid_pack.indexing.stores.local.lock import WriteLock
from llama_index_hybrid_pack.indexing.stores.local.postings import (
    DamagedIndexError,
    PostingsView,
    PostingsWriteError,
)
from llama_index_hybrid_pack.indexing.stores.local.scan import DenseView
from llama_index_hybrid_pack.indexing.stores.local.settings import Settings
from llama_index_hybrid_pack.indexing.stores.local.table import Snapshot, Table
from llama_index_hybrid_pack.indexing.stores.local.transaction import Transaction
from llama_index_hybrid_pack.indexing.stores.local.vectors import VectorFile

logger = logging.getLogger(__name__)

LEXICAL_FOLDER = "lexical"
DENSE_FOLDER = "dense"
#: A write that removes more rows than this takes them out of the lexical index at once.
_MANY_REMOVED = 1000
#: Attempts at a view before writers are held off, and in all.
_PATIENCE = 8
_TRIES = 200


@dataclass(frozen=True)
class View:
    """One committed state: the table and the indexes at its generation."""

    snapshot: Snapshot
    settings: Settings
    dense: DenseView | None
    lexical: PostingsView | None


class Engine:
    """An open store; safe to share between threads, not between processes."""

    def __init__(
        self,
        path: Path,
        table: Table,
        lock: WriteLock,
        *,
        read_only: bool,
        inverted_above: int | None,
    ) -> None:
        self.path = path
        self.table = table
        self.lock = lock
        self.read_only = read_only
        with table.snapshot() as snapshot:
            settings = Settings.of(snapshot)
            self._settings = (snapshot.generation, settings)
        self.vectors = VectorFile(path / DENSE_FOLDER, store_id=settings.store_id)
        self.inverted = InvertedFile(path / DENSE_FOLDER, threshold=inverted_above)
        self.dense = DenseIndex(self.vectors, self.inverted)
        self.lexical = LexicalFollower(
            path / LEXICAL_FOLDER, table, lock, settings, read_only=read_only
        )
        # A store that is dropped without close() still closes its connections.
        weakref.finalize(self, _close_table, table, os.getpid())

    def settings(self, snapshot: Snapshot) -> Settings:
        """Return the settings at a snapshot; another process may have changed them."""
        generation, settings = self._settings
        if generation != snapshot.generation:
            settings = Settings.of(snapshot)
            self.lexical.use(settings)
            self._settings = (snapshot.generation, settings)
        return settings

    @contextmanager
    def view(self, *, dense: bool = False, lexical: bool = False) -> Iterator[View]:
        """Read one committed state with the indexes at exactly its generation.

        Args:
            dense: Whether the dense index is needed.
            lexical: Whether the lexical index is needed.
        """
        for attempt in range(_TRIES):
            with ExitStack() as stack:
                if attempt == _PATIENCE:
                    self.dense.forget()
                    if not self.read_only:
                        stack.enter_context(self.lock.held())
                stack.enter_context(translated(self.path))
                snapshot = stack.enter_context(self.table.snapshot())
                view = self._try_view(snapshot, dense=dense, lexical=lexical)
                if view is not None:
                    yield view
                    return
            if attempt > 1:
                time.sleep(0.01)
        msg = f"The store at {str(self.path)!r} is written to faster than it can be read."
        raise StoreError(msg)

    def _try_view(self, snapshot: Snapshot, *, dense: bool, lexical: bool) -> View | None:
        settings = self.settings(snapshot)
        if not snapshot.count or settings.dimension is None:
            return View(snapshot, settings, None, None)
        dense_view = self.dense.at(snapshot, settings.dimension) if dense else None
        if dense and dense_view is None:
            return None
        searcher = None
        if lexical:
            searcher = self.lexical.at(snapshot.generation)
            if searcher is None:
                self.lexical.refresh()
                searcher = self.lexical.at(snapshot.generation)
                if searcher is None:
                    return None
        return View(snapshot, settings, dense_view, searcher)

    def write(self, steps: Callable[[Change], None]) -> None:
        """Run the steps of a write, and commit all of them or none.

        Args:
            steps: Reads the table through the change, and inserts and removes.

        Raises:
            StoreWriteError: If the disk or the folder refuses; nothing was changed.
            StoreLockedError: If another writer holds the lock for too long.
        """
        with self._alone():
            change = self._commit(steps)
            if change is not None:
                self._follow(change)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the write lock, and tell failures in the package's words."""
        if self.read_only:
            msg = f"The store at {str(self.path)!r} was opened with read_only=True."
            raise StoreWriteError(msg)
        with self.lock.held(), translated(self.path, writing=True):
            try:
                yield
            except PostingsWriteError as error:
                self.lexical.index.forget()
                raise write_failed(self.path, error) from error

    def _commit(self, steps: Callable[[Change], None]) -> Change | None:
        try:
            return self._transact(steps)
        except DamagedIndexError as error:
            logger.warning("Lexical index of %s is damaged (%s).", self.path, error)
            self.lexical.index.mark_damaged()
            return self._transact(steps)

    def _transact(self, steps: Callable[[Change], None]) -> Change | None:
        with self.table.connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            before = Snapshot(connection)
            settings = self.settings(before)
            self.lexical.index.repair(before)
            transaction = Transaction(connection, settings.schema)
            with ExitStack() as stack:
                change = Change(transaction, settings, self.lexical.index, stack)
                steps(change)
                if not transaction.changed:
                    return None
                transaction.log()
            transaction.commit()
            return change

    def _follow(self, change: Change) -> None:
        """Bring the indexes' files along; the write is safe in the table whatever happens here."""
        try:
            with self.table.snapshot() as snapshot:
                settings = self.settings(snapshot)
                index = self.lexical.index
                if index.is_stale(snapshot):
                    index.rebuild(snapshot)
                elif change.removed > _MANY_REMOVED:
                    index.remove(snapshot)
                index.repair(snapshot)
                self.lexical.adopt_own_write(snapshot)
                self._follow_vectors(snapshot, settings.dimension)
        except INDEX_ERRORS as error:
            logger.warning(
                "The write to %s is stored, but its indexes could not follow (%s). They catch up "
                "at the next search or write.",
                self.path,
                error,
            )

    def _follow_vectors(
        self, snapshot: Snapshot, dimension: int | None, *, anew: bool = False
    ) -> None:
        if dimension is None:
            return
        self.vectors.catch_up(snapshot, dimension, anew=anew)
        mapped = self.vectors.map(snapshot, dimension)
        if mapped is not None:
            self.inverted.catch_up(mapped)

    def optimize(self) -> None:
        """Forget removed rows everywhere: log, indexes and free pages of the table."""
        with self._alone():
            self._commit(lambda change: change.transaction.forget_history())
            with self.table.snapshot() as snapshot:
                dimension = self.settings(snapshot).dimension
                self.lexical.index.rebuild(snapshot)
                self.lexical.adopt_own_write(snapshot)
                self._follow_vectors(snapshot, dimension, anew=True)
            self.dense.forget()
            self.table.compact()

    def describe(self) -> dict[str, Any]:
        """Return sizes, settings and engine choices."""
        with self.view(dense=True, lexical=True) as view:
            snapshot, settings = view.snapshot, view.settings
            return {
                "path": str(self.path),
                "nodes": snapshot.count,
                "generation": snapshot.generation.number,
                "dimension": settings.dimension,
                "analyzer": settings.analyzer.to_dict(),
                "metadata_schema": {name: kind.value for name, kind in settings.schema.items()},
                "dense": {} if view.dense is None else view.dense.describe(),
                "lexical": {} if view.lexical is None else view.lexical.describe(),
                "bytes_on_disk": {
                    "table": self.table.size(),
                    "dense": self.vectors.size(),
                    "lexical": self.lexical.index.size(),
                },
            }

    def close(self) -> None:
        """Close files and connections."""
        self.table.close()


def _close_table(table: Table, owner: int) -> None:
    if os.getpid() == owner:
        table.close()
