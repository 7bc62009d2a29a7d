"""The lexical index on disk, and how it stays in step with the table.

New rows go into the index *before* the table commits them, removed rows leave it *after*. So the
index always holds at least the rows of the table; what it holds beyond them (rows of a write that
is under way or was cut off, rows removed lately) is dropped when ids are looked up in the table. A
write that fails in the index therefore fails as a whole, before anything was changed, and a search
never waits for a write.

``state.json`` promises, before each commit of the index, which generation follows. The index is
complete for a table whose last row is no higher than that of a promised generation in the table's
log. Where it is not (an older copy, a folder of another store, damage), it is caught up from the
table or built anew, in a folder of its own that then takes the old one's place.
"""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from llama_index_hybrid_pack.indexing.stores.local.files import read_state, size_of, write_state
from llama_index_hybrid_pack.indexing.stores.local.postings import (
    DamagedIndexError,
    LexicalDocument,
    Postings,
    PostingsSession,
    PostingsView,
)
from llama_index_hybrid_pack.indexing.stores.local.table import Generation, Snapshot

logger = logging.getLogger(__name__)

_FORMAT = 1
_STATE = "state.json"
#: Removed rows above this share of the live ones have a write build the index anew ...
_STALE_SHARE = 0.2
#: ... if it holds no more nodes than this, which takes seconds.
_MOST_REBUILT = 20_000
#: Builds of fewer nodes than this show no progress bar.
_LONG = 5000

#: Gives the documents of the rows above a row, read from the table.
Documents = Callable[[Snapshot, int], Iterable[LexicalDocument]]


@dataclass(frozen=True)
class _State:
    epoch: str
    base: Generation
    following: Generation
    built: int
    """Generation at which the index was last built without removed rows."""

    def last_row(self, snapshot: Snapshot) -> int | None:
        """Return up to which row the index is complete, ``None`` if that cannot be known."""
        for promised in (self.following, self.base):
            row = snapshot.last_row_of(promised)
            if row is not None:
                return row
        return None


class LexicalIndex:
    """One tantivy index with its state; everything that writes needs the write lock."""

    def __init__(
        self, folder: Path, *, store_id: str, fingerprint: str, documents: Documents
    ) -> None:
        self.folder = folder
        self._owner = {"format": _FORMAT, "store_id": store_id, "fingerprint": fingerprint}
        self._documents = documents
        self._open: tuple[str, Postings] | None = None
        self._damaged = False
        #: Whether the index could not be opened; a writer may just have replaced it.
        self.suspected = False

    def is_complete(self, snapshot: Snapshot) -> bool:
        """Return whether the index holds every row of the snapshot."""
        state = self._state()
        return (
            not self._damaged
            and state is not None
            and state.last_row(snapshot) == snapshot.last_row
        )

    def is_stale(self, snapshot: Snapshot) -> bool:
        """Return whether removed rows distort the statistics of terms and are cheaply left out.

        tantivy counts removed documents until it merges them away. In a large store they are
        few beside the others, or worth an ``optimize()`` at a time of the user's choice.
        """
        state = self._state()
        if state is None or snapshot.count > _MOST_REBUILT:
            return False
        return snapshot.removals_after(state.built) > _STALE_SHARE * snapshot.count

    def searcher(self) -> PostingsView:
        """Return a view of the newest commit.

        Raises:
            DamagedIndexError: If the index cannot be read; :meth:`repair` builds it anew.
        """
        state = self._state()
        if state is None:
            msg = "the lexical index has no state"
            raise DamagedIndexError(msg)
        return self._postings(state.epoch).searcher()

    def forget(self) -> None:
        """Close the index; the next use opens it again."""
        self._open = None

    def suspect(self) -> None:
        """Have the next :meth:`repair` open the index, and build it anew if that fails."""
        self.suspected = True
        self._open = None

    def mark_damaged(self) -> None:
        """Have the next :meth:`repair` build the index anew."""
        self._damaged = True
        self._open = None

    def repair(self, snapshot: Snapshot) -> None:
        """Make the index complete for the snapshot, from the table.

        Args:
            snapshot: The table; nothing may be written to it meanwhile.
        """
        state = self._state()
        last = None if state is None or self._damaged else state.last_row(snapshot)
        if state is None or last is None or not self._opens(state):
            self.rebuild(snapshot)
        elif last != snapshot.last_row:
            logger.info("Lexical index at %s: catching up with the table.", self.folder)
            try:
                self._catch_up(state, last, snapshot)
            except DamagedIndexError as error:
                logger.warning("Lexical index at %s is damaged (%s).", self.folder, error)
                self.rebuild(snapshot)

    def _opens(self, state: _State) -> bool:
        if not self.suspected:
            return True
        try:
            self._postings(state.epoch).searcher()
        except DamagedIndexError as error:
            logger.warning("Lexical index at %s is damaged (%s).", self.folder, error)
            return False
        self.suspected = False
        return True

    def rebuild(self, snapshot: Snapshot) -> None:
        """Build the index from the table in a new folder, which then replaces the old one."""
        if snapshot.count:
            logger.info("Lexical index at %s: building from the table.", self.folder)
        epoch = uuid.uuid4().hex
        try:
            postings = Postings(self.folder / epoch, create=True)
            with postings.session() as session:
                for document in self._shown(snapshot):
                    session.add(document)
                session.commit()
            number = snapshot.generation.number
            self._write(_State(epoch, snapshot.generation, snapshot.generation, number))
        except BaseException:
            shutil.rmtree(self.folder / epoch, ignore_errors=True)
            raise
        self._open = (epoch, postings)
        self._damaged = self.suspected = False
        self._sweep(epoch)

    def _shown(self, snapshot: Snapshot) -> Iterable[LexicalDocument]:
        """Return every document, with a progress bar if there are many and on a terminal only."""
        documents = self._documents(snapshot, 0)
        if snapshot.count < _LONG:
            return documents
        shown: Iterable[LexicalDocument] = tqdm(
            documents, total=snapshot.count, desc="Indexing", unit="node", disable=None, leave=False
        )
        return shown

    @contextmanager
    def extension(self, snapshot: Snapshot, following: Generation) -> Iterator[PostingsSession]:
        """Open a commit for the write that makes generation ``following`` of the snapshot.

        The index must be complete for the snapshot. Leaving the block commits.
        """
        state = self._state()
        if state is None:
            msg = "the lexical index has no state"
            raise DamagedIndexError(msg)
        with self._postings(state.epoch).session() as session:
            self._clean(session, state, snapshot)
            yield session
            self._write(replace(state, base=snapshot.generation, following=following))
            session.commit()

    def remove(self, snapshot: Snapshot) -> None:
        """Take rows that the snapshot no longer has out of the index."""
        state = self._state()
        if state is None or not self.is_complete(snapshot):
            return
        with self._postings(state.epoch).session() as session:
            self._clean(session, state, snapshot)
            session.commit()
        self._write(replace(state, base=snapshot.generation, following=snapshot.generation))

    def size(self) -> int:
        """Return the bytes on disk."""
        return size_of(self.folder.rglob("*"))

    @staticmethod
    def _clean(session: PostingsSession, state: _State, snapshot: Snapshot) -> None:
        """Take out what the table does not have: of a cut-off write, and removed since."""
        if snapshot.last_row_of(state.following) is None:
            # The write was cut off after its promise; its rows are given anew to other nodes.
            session.remove_from(snapshot.last_row + 1)
        session.remove(snapshot.removed_after(state.base.number - 1).tolist())

    def _catch_up(self, state: _State, last: int, snapshot: Snapshot) -> None:
        with self._postings(state.epoch).session() as session:
            session.remove_from(last + 1)
            session.remove(snapshot.removed_after(state.base.number - 1).tolist())
            for document in self._documents(snapshot, last):
                session.add(document)
            session.commit()
        self._write(replace(state, base=snapshot.generation, following=snapshot.generation))

    def _postings(self, epoch: str) -> Postings:
        opened = self._open
        if opened is None or opened[0] != epoch:
            opened = self._open = (epoch, Postings(self.folder / epoch))
        return opened[1]

    def _state(self) -> _State | None:
        state = read_state(self.folder / _STATE)
        if state is None or any(state.get(key) != value for key, value in self._owner.items()):
            return None
        try:
            return _State(
                str(state["epoch"]),
                Generation(*state["base"]),
                Generation(*state["following"]),
                int(state["built"]),
            )
        except (KeyError, TypeError, ValueError):
            return None

    def _write(self, state: _State) -> None:
        record: dict[str, Any] = {
            **self._owner,
            "epoch": state.epoch,
            "base": list(state.base),
            "following": list(state.following),
            "built": state.built,
        }
        write_state(self.folder / _STATE, record)

    def _sweep(self, epoch: str) -> None:
        for other in self.folder.iterdir():
            if other.is_dir() and other.name != epoch:
                # Searchers that still read it keep their open files.
                shutil.rmtree(other, ignore_errors=True)
