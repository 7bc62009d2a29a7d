"""The lexical index as readers see it: a view at exactly the generation that they read."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from llama_index_hybrid_pack.errors import StoreError
from llama_index_hybrid_pack.indexing.stores.local.change import stored_documents
from llama_index_hybrid_pack.indexing.stores.local.lexical import LexicalIndex
from llama_index_hybrid_pack.indexing.stores.local.lock import WriteLock
from llama_index_hybrid_pack.indexing.stores.local.postings import (
    DamagedIndexError,
    PostingsView,
    PostingsWriteError,
)
from llama_index_hybrid_pack.indexing.stores.local.settings import Settings
from llama_index_hybrid_pack.indexing.stores.local.table import Generation, Snapshot, Table

logger = logging.getLogger(__name__)

#: What may go wrong in a derived index without the table being touched.
INDEX_ERRORS = (
    OSError,
    ValueError,
    RuntimeError,  # FAISS
    sqlite3.Error,
    DamagedIndexError,
    PostingsWriteError,
    StoreError,
)


class _Kept(NamedTuple):
    """A view of a lexical index, and the generation for which it is exact."""

    generation: Generation
    view: PostingsView
    source: LexicalIndex


class LexicalFollower:
    """Gives views of the shared index, or of a private one where that cannot be made complete."""

    def __init__(
        self, folder: Path, table: Table, lock: WriteLock, settings: Settings, *, read_only: bool
    ) -> None:
        self._folder = folder
        self._table = table
        self._lock = lock
        self._read_only = read_only
        self._used = settings
        self.index = self._make(folder)
        self._kept: _Kept | None = None
        self._private: LexicalIndex | None = None
        self._refreshing = threading.Lock()

    def _make(self, folder: Path) -> LexicalIndex:
        return LexicalIndex(
            folder,
            store_id=self._used.store_id,
            fingerprint=self._used.lexical_fingerprint(),
            documents=partial(stored_documents, self._used),
        )

    def use(self, settings: Settings) -> None:
        """Follow a change of the analyzer or of the declared fields."""
        if settings.lexical_fingerprint() != self._used.lexical_fingerprint():
            self._used = settings
            self.index = self._make(self._folder)
            self._private = None

    def at(self, generation: Generation) -> PostingsView | None:
        """Return the view of a generation, ``None`` if :meth:`refresh` must find one first."""
        kept = self._kept
        return kept.view if kept is not None and kept.generation == generation else None

    def refresh(self) -> None:
        """Look for a view of the newest generation; a write meanwhile may need one more look."""
        if self._adopt(self._shared) or (not self._read_only and self._repair()):
            return
        self._adopt(self._temporary)

    def adopt_own_write(self, snapshot: Snapshot) -> None:
        """Show what this process has just written; the write lock must be held."""
        self._kept = _Kept(snapshot.generation, self.index.searcher(), self.index)

    def _adopt(self, choose: Callable[[Snapshot], LexicalIndex | None]) -> bool:
        """Load a searcher and find out for which generation it is exact.

        Rows enter the index before the table, and leave it after. So a searcher that was loaded
        between two looks at the table, both at generation g, has all rows of g.
        """
        with self._refreshing:
            with self._table.snapshot() as before:
                if self.at(before.generation) is not None:
                    return True
                self.use(Settings.of(before))
                index = choose(before)
            if index is None:
                return False
            try:
                view = index.searcher()
            except DamagedIndexError as error:
                logger.warning("Lexical index at %s cannot be read (%s).", index.folder, error)
                index.suspect()
                return False
            with self._table.snapshot() as after:
                if after.generation == before.generation:
                    self._kept = _Kept(after.generation, view, index)
            return True

    def _shared(self, snapshot: Snapshot) -> LexicalIndex | None:
        return self.index if self.index.is_complete(snapshot) else None

    def _repair(self) -> bool:
        """Make the shared lexical index complete; return whether it is."""
        with self._table.snapshot() as now:
            # The state may belong to a write that was committed after the first look.
            if self.index.is_complete(now) and not self.index.suspected:
                return True
        try:
            with self._lock.held(), self._table.snapshot() as now:
                self.index.repair(now)
        except INDEX_ERRORS as error:
            logger.warning("Lexical index at %s cannot be repaired: %s", self.index.folder, error)
            return False
        return True

    def _temporary(self, snapshot: Snapshot) -> LexicalIndex:
        """Return an index in a temporary folder, for when the shared one cannot be written."""
        if self._private is None:
            folder = Path(tempfile.mkdtemp(prefix="hybrid-pack-"))
            weakref.finalize(self, remove_folder, folder, os.getpid())
            # What cannot be copied is built from the table.
            with contextlib.suppress(OSError, shutil.Error):
                shutil.copytree(self.index.folder, folder, dirs_exist_ok=True)
            self._private = self._make(folder)
        self._private.repair(snapshot)
        return self._private

    def discard(self) -> None:
        """Give up a view that failed in a search; its index is built anew."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.source.mark_damaged()


def remove_folder(folder: Path, owner: int) -> None:
    """Remove a temporary folder, unless this is a forked child of the process that made it."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
