"""A write of the embedded store that fails at any of its steps: all of it or nothing is stored."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llama_index_hybrid_pack.errors import StoreWriteError
from llama_index_hybrid_pack.indexing.stores.local import (
    LocalHybridStore,
    engine,
    follower,
    inverted,
    lexical,
    postings,
    transaction,
    vectors,
)
from tests.store_states import State, assert_holds, nodes_of

#: Steps up to the commit of the table, in order.
BEFORE_COMMIT = [
    (lexical.LexicalIndex, "repair"),
    (transaction.Transaction, "remove"),
    (postings.PostingsSession, "open"),
    (transaction.Transaction, "insert"),
    (postings.PostingsSession, "add"),
    (transaction.Transaction, "log"),
    (lexical, "write_state"),
    (postings.PostingsSession, "commit"),
    (postings.PostingsSession, "close"),
    (transaction.Transaction, "commit"),
]
#: Steps after it.
AFTER_COMMIT = [
    (lexical.LexicalIndex, "is_stale"),
    (lexical.LexicalIndex, "rebuild"),
    (follower.LexicalFollower, "adopt_own_write"),
    (vectors.VectorFile, "catch_up"),
    (vectors, "write_state"),
    (inverted.InvertedFile, "catch_up"),
]

OLD: State = {"a": "red apple", "b": "green pear", "c": "blue plum", "d": "red rose"}
NEW: State = {"a": "red apple", "b": "yellow banana", "c": "blue plum", "e": "white lily"}
DELETED = ["d"]


class Faults:
    """Raises at a step once, or as long as it is armed."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: object, name: str) -> None:
        self.hits = 0
        self.armed = False
        self.error: Callable[[], BaseException] = lambda: OSError(errno.ENOSPC, "No space left")
        original = getattr(owner, name)

        def step(*args: object, **kwargs: object) -> object:
            if self.armed and self.when == "before":
                self.hits += 1
                raise self.error()
            result = original(*args, **kwargs)
            if self.armed:
                self.hits += 1
                raise self.error()
            return result

        self.when = "before"
        patch.setattr(owner, name, step)


@contextmanager
def armed(faults: Faults, when: str) -> Iterator[None]:
    faults.when, faults.armed = when, True
    try:
        yield
    finally:
        faults.armed = False


def write(store: LocalHybridStore) -> None:
    changed = {node_id: text for node_id, text in NEW.items() if OLD.get(node_id) != text}
    store.apply(nodes_of(changed), delete_node_ids=DELETED)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.mark.parametrize(
    ("owner", "name", "when"),
    [
        (owner, name, when)
        for owner, name in BEFORE_COMMIT
        for when in ("before", "after")
        # Nothing can fail between the table's commit and its return.
        if (owner, when) != (transaction.Transaction, "after") or name != "commit"
    ],
    ids=str,
)
def test_a_failure_before_the_commit_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, when: str
) -> None:
    with LocalHybridStore(path) as store:
        store.add(nodes_of(OLD))
        faults = Faults(monkeypatch, owner, name)
        with armed(faults, when), pytest.raises(StoreWriteError):
            write(store)
        assert faults.hits
        assert_holds(store, OLD)
        with LocalHybridStore(path) as other:
            assert_holds(other, OLD)
        write(store)
        assert_holds(store, NEW)
    with LocalHybridStore(path) as store:
        assert_holds(store, NEW)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("owner", "name"), AFTER_COMMIT, ids=str)
def test_a_failure_after_the_commit_loses_nothing(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: object,
    name: str,
    when: str,
) -> None:
    with LocalHybridStore(path) as store:
        store.add(nodes_of(OLD))
        faults = Faults(monkeypatch, owner, name)
        with armed(faults, when), caplog.at_level(logging.WARNING):
            write(store)
            assert faults.hits
            assert "is stored, but its indexes could not follow" in caplog.text
            # The index still cannot be written: searches see the new state all the same.
            assert_holds(store, NEW)
            with LocalHybridStore(path) as other:
                assert_holds(other, NEW)
        assert_holds(store, NEW)
        with LocalHybridStore(path) as other:
            assert_holds(other, NEW)
        store.add(nodes_of({"f": "late fig"}))
        assert_holds(store, {**NEW, "f": "late fig"})
    with LocalHybridStore(path) as store:
        assert_holds(store, {**NEW, "f": "late fig"})


def test_an_interrupted_write_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalHybridStore(path) as store:
        store.add(nodes_of(OLD))
        faults = Faults(monkeypatch, postings.PostingsSession, "add")
        faults.error = KeyboardInterrupt
        with armed(faults, "before"), pytest.raises(KeyboardInterrupt):
            write(store)
        assert_holds(store, OLD)
        write(store)
        assert_holds(store, NEW)


def test_the_first_write_may_fail_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalHybridStore(path) as store:
        faults = Faults(monkeypatch, transaction.Transaction, "commit")
        with armed(faults, "before"), pytest.raises(StoreWriteError):
            store.add(nodes_of(OLD))
        assert_holds(store, {})
        # The dimension was rolled back with the rest.
        assert store.describe()["dimension"] is None
        store.add(nodes_of(OLD))
        assert_holds(store, OLD)


@pytest.mark.parametrize(
    ("owner", "name"), [(lexical.LexicalIndex, "rebuild"), (vectors, "write_state")]
)
def test_optimize_that_fails_loses_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    with LocalHybridStore(path) as store:
        store.add(nodes_of(OLD))
        write(store)
        faults = Faults(monkeypatch, owner, name)
        with armed(faults, "before"), pytest.raises(StoreWriteError):
            store.optimize()
        assert_holds(store, NEW)
        store.optimize()
        assert_holds(store, NEW)


def test_many_failures_in_a_row_leave_no_trace(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalHybridStore(path) as store:
        store.add(nodes_of(OLD))
        faults = Faults(monkeypatch, transaction.Transaction, "commit")
        for _ in range(5):
            with armed(faults, "before"), pytest.raises(StoreWriteError):
                write(store)
        write(store)
        assert_holds(store, NEW)
        store.optimize()
        assert engine.Engine.describe(store.client)["lexical"]["documents"] == len(NEW)
