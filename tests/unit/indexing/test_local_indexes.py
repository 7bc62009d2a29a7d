"""The files of the derived indexes: behind, ahead, foreign, damaged or gone, they are put right."""

from __future__ import annotations

import errno
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from llama_index_hybrid_pack.errors import StoreCorruptError
from llama_index_hybrid_pack.indexing.stores.base import BM25, SearchRequest
from llama_index_hybrid_pack.indexing.stores.local import (
    LocalHybridStore,
    engine,
    lexical,
    postings,
)
from tests.store_states import State, assert_holds, nodes_of

FIRST: State = {f"n{number}": f"word{number} text" for number in range(6)}
MORE: State = {"n1": "changed text", "new": "added text"}
STATE: State = {**{key: text for key, text in FIRST.items() if key != "n2"}, **MORE}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed store whose history has adds, an update and a delete."""
    folder = tmp_path / "store"
    with LocalHybridStore(folder) as store:
        store.add(nodes_of(FIRST))
        store.apply(nodes_of(MORE), delete_node_ids=["n2"])
    return folder


def everywhere(path: Path, state: State) -> None:
    """The state holds for a reader that may not write, and for a writer, which repairs."""
    with LocalHybridStore(path, read_only=True) as store:
        assert_holds(store, state)
    with LocalHybridStore(path) as store:
        assert_holds(store, state)
        store.add(nodes_of({"later": "one more"}))
        assert_holds(store, {**state, "later": "one more"})
    with LocalHybridStore(path, read_only=True) as store:
        assert_holds(store, {**state, "later": "one more"})


def edit(file: Path, change: Callable[[dict], None]) -> None:
    state = json.loads(file.read_text())
    change(state)
    file.write_text(json.dumps(state))


@pytest.mark.parametrize("folder", ["lexical", "dense"])
class TestStateFile:
    def test_a_missing_folder_is_built_anew(self, path: Path, folder: str) -> None:
        shutil.rmtree(path / folder)
        everywhere(path, STATE)

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"format": 1}', b"\xff\xfe"])
    def test_an_unreadable_state_is_built_anew(
        self, path: Path, folder: str, content: bytes
    ) -> None:
        (path / folder / "state.json").write_bytes(content)
        everywhere(path, STATE)

    @pytest.mark.parametrize(
        "change",
        [
            {"store_id": "of another store"},
            {"format": 99},
            {"epoch": "none-of-this-name"},
        ],
        ids=str,
    )
    def test_a_foreign_state_is_built_anew(self, path: Path, folder: str, change: dict) -> None:
        edit(path / folder / "state.json", lambda state: state.update(change))
        everywhere(path, STATE)

    def test_the_folder_of_another_store_is_not_believed(
        self, path: Path, folder: str, tmp_path: Path
    ) -> None:
        with LocalHybridStore(tmp_path / "other") as other:
            other.add(nodes_of({"x": "other text"}))
            other.add(nodes_of({"y": "other text"}))
        shutil.rmtree(path / folder)
        shutil.copytree(tmp_path / "other" / folder, path / folder)
        everywhere(path, STATE)

    def test_an_older_copy_catches_up(self, path: Path, folder: str, tmp_path: Path) -> None:
        shutil.copytree(path / folder, tmp_path / "copy")
        state = {**STATE, "extra": "extra text", "n0": "n0 anew"}
        with LocalHybridStore(path) as store:
            store.add(nodes_of({"extra": "extra text"}))
            store.apply(nodes_of({"n0": "n0 anew"}), delete_node_ids=["n5"])
            del state["n5"]
        shutil.rmtree(path / folder)
        shutil.copytree(tmp_path / "copy", path / folder)
        everywhere(path, state)


@pytest.mark.parametrize("restored", ["same number", "fewer", "more"])
def test_a_table_from_a_backup_is_not_served_by_newer_indexes(
    path: Path, tmp_path: Path, restored: str
) -> None:
    """Generations are told apart by their token, not only by their number."""
    shutil.copytree(path, tmp_path / "backup")
    with LocalHybridStore(path) as store:
        store.add(nodes_of({"lost": "lost text"}))
        store.add(nodes_of({"lost2": "lost text"}))
    shutil.copy(tmp_path / "backup" / "store.db", path / "store.db")
    state = dict(STATE)
    writes = {"same number": 2, "fewer": 0, "more": 4}[restored]
    shutil.move(path / "lexical", tmp_path / "lexical")
    shutil.move(path / "dense", tmp_path / "dense")
    with LocalHybridStore(path) as store:
        for number in range(writes):
            state[f"anew{number}"] = "anew text"
            store.add(nodes_of({f"anew{number}": "anew text"}))
    for folder in ("lexical", "dense"):
        shutil.rmtree(path / folder, ignore_errors=True)
        shutil.move(tmp_path / folder, path / folder)
    everywhere(path, state)


def lexical_files(path: Path, suffix: str) -> list[Path]:
    return [file for file in (path / "lexical").rglob("*") if file.name.endswith(suffix)]


@pytest.mark.parametrize("suffix", [".idx", ".term", ".fast", ".fieldnorm", ".store", "meta.json"])
@pytest.mark.parametrize("damage", ["cut", "garbage", "gone"])
def test_a_damaged_lexical_index_is_built_anew(path: Path, suffix: str, damage: str) -> None:
    files = lexical_files(path, suffix)
    assert files
    for file in files:
        content = file.read_bytes()
        if damage == "gone":
            file.unlink()
        else:
            half = len(content) // 2
            file.write_bytes(content[:half] + (b"\xa5" * (len(content) - half) * (damage != "cut")))
    everywhere(path, STATE)


def test_an_index_that_fails_during_a_search_is_built_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = postings.PostingsView._hits
    failures = iter([True])

    def hits(self: postings.PostingsView, query: object, limit: int) -> object:
        if next(failures, False):
            message = "invalid data"
            raise postings.DamagedIndexError(message)
        return original(self, query, limit)

    with LocalHybridStore(path) as store:
        before = {file.name for file in (path / "lexical").iterdir()}
        monkeypatch.setattr(postings.PostingsView, "_hits", hits)
        assert_holds(store, STATE)
        assert {file.name for file in (path / "lexical").iterdir()} != before


@pytest.mark.parametrize("offset", [0, 100, -4])
def test_a_changed_byte_in_the_vector_file_is_noticed(path: Path, offset: int) -> None:
    (file,) = (path / "dense").glob("vectors-*.f32")
    content = bytearray(file.read_bytes())
    content[offset] ^= 0x55
    file.write_bytes(content)
    everywhere(path, STATE)


@pytest.mark.parametrize("pattern", ["vectors-*.f32", "rows-*.i64"])
@pytest.mark.parametrize("damage", ["cut", "empty", "gone", "longer"])
def test_a_damaged_vector_file_is_written_anew(path: Path, pattern: str, damage: str) -> None:
    (file,) = (path / "dense").glob(pattern)
    content = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(
            {"cut": content[:-9], "empty": b"", "longer": content + b"left over"}[damage]
        )
    everywhere(path, STATE)


def test_the_vector_file_is_repaired_by_the_next_write(path: Path) -> None:
    (file,) = (path / "dense").glob("vectors-*.f32")
    content = bytearray(file.read_bytes())
    content[5] ^= 0x01
    file.write_bytes(content)
    with LocalHybridStore(path) as store:
        assert_holds(store, STATE)
        store.add(nodes_of({"later": "text"}))
        assert store.describe()["dense"]["mapped_rows"] == len(STATE) + 1
        assert not file.exists()


def test_a_lexical_index_that_cannot_be_repaired_is_replaced_in_private(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(path / "lexical")
    original = lexical.write_state

    def write_state(file: Path, state: dict) -> None:
        if path in file.parents:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(file, state)

    monkeypatch.setattr(lexical, "write_state", write_state)
    with LocalHybridStore(path) as store:
        assert_holds(store, STATE)
        assert not (path / "lexical" / "state.json").exists()
        monkeypatch.undo()
        store.add(nodes_of({"later": "text"}))
        assert_holds(store, {**STATE, "later": "text"})
        assert (path / "lexical" / "state.json").exists()


def test_an_open_reader_follows_an_optimize(path: Path) -> None:
    """The log of changes that it would follow is gone then."""
    with LocalHybridStore(path) as store, LocalHybridStore(path, read_only=True) as reader:
        assert_holds(reader, STATE)
        store.delete_nodes(["n0"])
        store.optimize()
        store.add(nodes_of({"later": "text"}))
        state = {**STATE, "later": "text"}
        del state["n0"]
        assert_holds(reader, state)


def test_a_damaged_page_of_the_table_is_reported(path: Path) -> None:
    with LocalHybridStore(path) as store:
        store.add(nodes_of({f"more{number}": "text " * 100 for number in range(300)}))
    file = path / "store.db"
    content = bytearray(file.read_bytes())
    content[2 * 8192 :] = b"\xff" * (len(content) - 2 * 8192)
    file.write_bytes(content)
    with (
        pytest.raises(StoreCorruptError, match="from a backup"),
        LocalHybridStore(path) as store,
    ):
        assert_holds(store, {})


def test_reading_never_writes_to_a_store_opened_read_only(path: Path) -> None:
    shutil.rmtree(path / "lexical")
    shutil.rmtree(path / "dense")
    with LocalHybridStore(path, read_only=True) as store:
        assert_holds(store, STATE)
    assert {file.name for file in path.iterdir()} <= {
        "store.db",
        "store.db-wal",
        "store.db-shm",
        "write.lock",
    }


@pytest.mark.parametrize("between", ["nothing", "a small delete", "a large delete"])
def test_a_phantom_of_a_cut_off_write_is_never_found(
    path: Path, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    """Documents that entered the index before a commit that never came; their rows come again."""
    with LocalHybridStore(path) as store:
        with monkeypatch.context() as patch:
            error = sqlite3.OperationalError("disk I/O error")
            patch.setattr(
                "llama_index_hybrid_pack.indexing.stores.local.transaction.Transaction.commit",
                lambda self: (_ for _ in ()).throw(error),
            )
            with pytest.raises(OSError, match="before anything was changed"):
                store.add(nodes_of({"ghost": "ectoplasm"}))
        found = store.search(SearchRequest(query_str="ectoplasm"))
        assert found.legs[BM25].ids == []
        if between == "a large delete":
            monkeypatch.setattr(engine, "_MANY_REMOVED", 0)
            monkeypatch.setattr(lexical, "_MOST_REBUILT", 0)
            store.delete_nodes(["n0"])
        elif between == "a small delete":
            store.delete_nodes(["n0"])
        state = {key: text for key, text in STATE.items() if key != "n0" or between == "nothing"}
        store.add(nodes_of({"solid": "stone"}))
        assert store.search(SearchRequest(query_str="ectoplasm")).legs[BM25].ids == []
        assert_holds(store, {**state, "solid": "stone"})
