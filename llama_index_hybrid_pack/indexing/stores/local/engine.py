"""The table and its two indexes as one thing: consistent views for readers, safe writes."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from llama_index_hybrid_pack.errors import StoreError, StoreWriteError
from llama_index_hybrid_pack.indexing.stores.local.change import Change, stored_documents
from llama_index_hybrid_pack.indexing.stores.local.dense import DenseIndex
from llama_index_hybrid_pack.indexing.stores.local.failures import translated, write_failed
from llama_index_hybrid_pack.indexing.stores.local.inverted import InvertedFile
from llama_index_hybrid_pack.indexing.stores.local.lexical import LexicalIndex
from llama_index_hybrid_pack.indexing.stores.local.lock import WriteLock
from llama_index_hybrid_pack.indexing.stores.local.postings import (
    DamagedIndexError,
    PostingsView,
    PostingsWriteError,
)
from llama_index_hybrid_pack.indexing.stores.local.scan import DenseView
from llama_index_hybrid_pack.indexing.stores.local.settings import Settings
from llama_index_hybrid_pack.indexing.stores.local.table import Generation, Snapshot, Table
from llama_index_hybrid_pack.indexing.stores.local.transaction import Transaction
from llama_index_hybrid_pack.indexing.stores.local.vectors import VectorFile

logger = logging.getLogger(__name__)

LEXICAL_FOLDER = "lexical"
DENSE_FOLDER = "dense"
#: What may go wrong in a derived index without the table being touched.
_INDEX_ERRORS = (OSError, ValueError, DamagedIndexError, PostingsWriteError, StoreError)
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
        self.lexical = self._lexical_index(path / LEXICAL_FOLDER, settings)
        self._searcher: tuple[Generation, PostingsView] | None = None
        self._private: LexicalIndex | None = None
        self._refreshing = threading.Lock()
        # A store that is dropped without close() still closes its connections.
        weakref.finalize(self, _close_table, table, os.getpid())

    @staticmethod
    def _lexical_index(folder: Path, settings: Settings) -> LexicalIndex:
        return LexicalIndex(
            folder,
            store_id=settings.store_id,
            fingerprint=settings.lexical_fingerprint(),
            documents=partial(stored_documents, settings),
        )

    def settings(self, snapshot: Snapshot) -> Settings:
        """Return the settings at a snapshot; another process may have changed them."""
        generation, settings = self._settings
        if generation != snapshot.generation:
            newer = Settings.of(snapshot)
            if newer.lexical_fingerprint() != settings.lexical_fingerprint():
                self.lexical = self._lexical_index(self.lexical.folder, newer)
                self._private = None
            settings = newer
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
                if attempt == _PATIENCE and not self.read_only:
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
            searcher = self._searcher_at(snapshot.generation)
            if searcher is None:
                self._refresh_searcher()
                searcher = self._searcher_at(snapshot.generation)
                if searcher is None:
                    return None
        return View(snapshot, settings, dense_view, searcher)

    def _searcher_at(self, generation: Generation) -> PostingsView | None:
        kept = self._searcher
        return kept[1] if kept is not None and kept[0] == generation else None

    def _refresh_searcher(self) -> None:
        """Load a searcher and find out for which generation it is exact.

        Rows enter the index before the table, and leave it after. So a searcher that was loaded
        between two looks at the table, both at generation g, has all rows of g.
        """
        with self.table.snapshot() as before:
            self.settings(before)
            complete = self.lexical.is_complete(before)
        if not complete:
            # The state may also belong to a write that was committed after this look.
            complete = self._repair()
        with self._refreshing:
            with self.table.snapshot() as before:
                if self._searcher_at(before.generation) is not None:
                    return
                index = self.lexical if complete else self._private_index(before)
                if not index.is_complete(before):
                    return
            try:
                searcher = index.searcher()
            except DamagedIndexError as error:
                logger.warning("Lexical index of %s is damaged (%s).", self.path, error)
                index.mark_damaged()
                return
            with self.table.snapshot() as after:
                if after.generation == before.generation:
                    self._searcher = (after.generation, searcher)

    def _repair(self) -> bool:
        """Make the lexical index complete; return whether the shared one is."""
        with self.table.snapshot() as now:
            if self.lexical.is_complete(now):
                return True
        if self.read_only:
            return False
        try:
            with self.lock.held(), self.table.snapshot() as now:
                self.lexical.repair(now)
        except _INDEX_ERRORS as error:
            logger.warning("Lexical index of %s cannot be repaired: %s", self.path, error)
            return False
        return True

    def _private_index(self, snapshot: Snapshot) -> LexicalIndex:
        """Return an index in a temporary folder, for when the shared one cannot be written."""
        if self._private is None:
            folder = Path(tempfile.mkdtemp(prefix="hybrid-pack-"))
            weakref.finalize(self, remove_folder, folder, os.getpid())
            if self.lexical.folder.is_dir():
                shutil.copytree(self.lexical.folder, folder, dirs_exist_ok=True)
            self._private = self._lexical_index(folder, self.settings(snapshot))
        self._private.repair(snapshot)
        return self._private

    def discard_searcher(self) -> None:
        """Give up a searcher that failed; the index is built anew at the next view."""
        self._searcher = None
        (self._private or self.lexical).mark_damaged()

    def write(self, steps: Callable[[Change], None]) -> None:
        """Run the steps of a write, and commit all of them or none.

        Args:
            steps: Reads the table through the change, and inserts and removes.

        Raises:
            StoreWriteError: If the disk or the folder refuses; nothing was changed.
            StoreLockedError: If another writer holds the lock for too long.
        """
        if self.read_only:
            msg = f"The store at {str(self.path)!r} was opened with read_only=True."
            raise StoreWriteError(msg)
        with self.lock.held(), translated(self.path, writing=True):
            try:
                change = self._commit(steps)
            except DamagedIndexError as error:
                logger.warning("Lexical index of %s is damaged (%s).", self.path, error)
                self.lexical.mark_damaged()
                change = self._commit(steps)
            if change is not None:
                self._follow(change)

    def _commit(self, steps: Callable[[Change], None]) -> Change | None:
        try:
            return self._transact(steps)
        except PostingsWriteError as error:
            self.lexical.forget()
            raise write_failed(self.path, error) from error

    def _transact(self, steps: Callable[[Change], None]) -> Change | None:
        with self.table.connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            before = Snapshot(connection)
            settings = self.settings(before)
            self.lexical.repair(before)
            transaction = Transaction(connection, settings.schema)
            with ExitStack() as stack:
                change = Change(transaction, settings, self.lexical, stack)
                steps(change)
                if not transaction.changed:
                    return None
                transaction.log()
            connection.execute("COMMIT")
            return change

    def _follow(self, change: Change) -> None:
        """Bring the indexes' files along; the write is safe in the table whatever happens here."""
        try:
            with self.table.snapshot() as snapshot:
                settings = self.settings(snapshot)
                if self.lexical.is_stale(snapshot):
                    self.lexical.rebuild(snapshot)
                elif change.removed > _MANY_REMOVED:
                    self.lexical.remove(snapshot)
                self.lexical.repair(snapshot)
                self._searcher = (snapshot.generation, self.lexical.searcher())
                self._follow_vectors(snapshot, settings.dimension)
        except _INDEX_ERRORS as error:
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
        self.write(lambda change: change.transaction.forget_history())
        with self.lock.held(), translated(self.path, writing=True):
            with self.table.snapshot() as snapshot:
                self.lexical.rebuild(snapshot)
                self._follow_vectors(snapshot, self.settings(snapshot).dimension, anew=True)
            self.dense.forget()
            self._searcher = None
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
                    "lexical": self.lexical.size(),
                },
            }

    def close(self) -> None:
        """Close files and connections."""
        self.table.close()


def remove_folder(folder: Path, owner: int) -> None:
    """Remove a temporary folder, unless this is a forked child of the process that made it."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _close_table(table: Table, owner: int) -> None:
    if os.getpid() == owner:
        table.close()
