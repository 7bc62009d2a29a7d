"""The open engine behind one or more store objects, across forks and copies."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

from llama_index_hybrid_pack.errors import StoreError
from llama_index_hybrid_pack.indexing.stores.local.engine import Engine

#: Engines of the parent process, kept so that a forked child never closes their connections:
#: SQLite forbids a connection to be used, even to be closed, on the other side of a fork.
_OF_THE_PARENT: list[Engine] = []
_HANDLES: weakref.WeakSet[Handle] = weakref.WeakSet()


class Handle:
    """Opens its engine at first use, and once more in a forked child."""

    def __init__(self, opener: Callable[[], Engine], path: str) -> None:
        self._opener = opener
        self._path = path
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._closed = False
        _HANDLES.add(self)

    def engine(self) -> Engine:
        """Return the open engine.

        Raises:
            StoreError: If the store was closed.
        """
        engine = self._engine
        if engine is None:
            with self._lock:
                if self._closed:
                    msg = f"The store at {self._path!r} is closed. Open it again."
                    raise StoreError(msg)
                engine = self._engine = self._engine or self._opener()
        return engine

    def close(self) -> None:
        """Close the engine for good; closing twice is no error."""
        with self._lock:
            self._closed = True
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def after_fork(self) -> None:
        """Start anew in a forked child."""
        self._lock = threading.Lock()
        if self._engine is not None:
            _OF_THE_PARENT.append(self._engine)
            self._engine = None


def _after_fork() -> None:
    for handle in list(_HANDLES):
        handle.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
