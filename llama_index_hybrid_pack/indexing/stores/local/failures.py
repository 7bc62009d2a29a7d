"""Errors of the file system and of SQLite, told in the package's own words."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llama_index_hybrid_pack.errors import (
    StoreCorruptError,
    StoreError,
    StoreLockedError,
    StoreWriteError,
)

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_ALLOWED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_FULL = "Free some space and repeat the call; nothing was changed."
_READ_ONLY = (
    "Make the folder writable, or open the store with read_only=True to search it; one that was "
    "not closed cleanly must first be opened once where it can be written."
)


@contextmanager
def translated(path: Path, *, writing: bool = False) -> Iterator[None]:
    """Raise the package's error for what the file system, SQLite or an index engine raises.

    Args:
        path: Folder of the store, for the message.
        writing: Whether the block is a write that leaves nothing behind when it fails.

    Raises:
        StoreWriteError: If the disk is full or the folder cannot be written.
        StoreLockedError: If SQLite's own lock is held by another process for too long.
        StoreCorruptError: If the table cannot be read.
        StoreError: For everything else that SQLite refuses.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise _from_sqlite(path, error, writing=writing) from error
    except OSError as error:
        if isinstance(error, StoreWriteError) or not (writing or error.errno in _NOT_ALLOWED):
            raise
        raise _write_error(path, error) from error


def write_failed(path: Path, error: BaseException) -> StoreWriteError:
    """Return the error for an index engine that could not write before the commit."""
    return StoreWriteError(
        f"Writing to the store at {str(path)!r} failed before anything was changed: {error}. "
        "Check free space and permissions, then repeat the call."
    )


def _write_error(path: Path, error: OSError) -> StoreWriteError:
    if error.errno in _NO_SPACE:
        return StoreWriteError(f"No space left for the store at {str(path)!r} ({error}). {_FULL}")
    if error.errno in _NOT_ALLOWED:
        return StoreWriteError(
            f"The store at {str(path)!r} cannot be written ({error}). {_READ_ONLY}"
        )
    return write_failed(path, error)


def _from_sqlite(path: Path, error: sqlite3.Error, *, writing: bool) -> StoreError:
    text = str(error)
    if "full" in text:
        return StoreWriteError(f"No space left for the store at {str(path)!r} ({text}). {_FULL}")
    if "readonly" in text or "unable to open" in text:
        return StoreWriteError(
            f"The store at {str(path)!r} cannot be written ({text}). {_READ_ONLY}"
        )
    if "I/O error" in text and writing:
        return write_failed(path, error)
    if "locked" in text or "busy" in text:
        return StoreLockedError(
            f"SQLite's lock on the store at {str(path)!r} is held by another process ({text}). "
            "Repeat the call when that process has finished."
        )
    if "malformed" in text or "not a database" in text or "no such table" in text:
        return StoreCorruptError(
            f"The table of the store at {str(path)!r} cannot be read ({text}). Restore "
            "'store.db' from a backup, or delete the folder and ingest again."
        )
    return StoreError(f"The store at {str(path)!r} failed: {text}.")
