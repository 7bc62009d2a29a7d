"""One writer at a time, among the threads of a process and among processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from llama_index_hybrid_pack.errors import StoreLockedError
from llama_index_hybrid_pack.indexing.stores.local.failures import translated


class WriteLock:
    """Lock file that the operating system frees when its holder dies."""

    def __init__(self, path: Path, *, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._threads = threading.RLock()
        self._depth = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock; a thread that holds it may enter again.

        Raises:
            StoreLockedError: If another writer keeps it longer than the timeout.
            StoreWriteError: If the lock file cannot be made.
        """
        deadline = time.monotonic() + self._timeout
        if not self._threads.acquire(timeout=self._timeout):
            raise _busy(self._path, "another thread of this process", self._timeout)
        try:
            if self._depth:
                yield
                return
            file = FileLock(self._path, is_singleton=False, thread_local=False)
            with translated(self._path.parent, writing=True):
                try:
                    file.acquire(timeout=max(0.0, deadline - time.monotonic()), poll_interval=0.01)
                except Timeout as error:
                    raise _busy(self._path, "another writer", self._timeout) from error
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                file.release()
        finally:
            self._threads.release()


def _busy(path: Path, holder: str, timeout: float) -> StoreLockedError:
    return StoreLockedError(
        f"{str(path)!r} is held by {holder} for more than {timeout:g} seconds. "
        "Wait until it has finished, or open the store with a longer lock_timeout."
    )
