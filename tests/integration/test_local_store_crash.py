"""The embedded store through kill -9, full disks, read-only folders and other processes."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llama_index_hybrid_pack.errors import StoreError, StoreLockedError, StoreWriteError
from llama_index_hybrid_pack.indexing.stores.base import BM25, DENSE, SearchRequest
from llama_index_hybrid_pack.indexing.stores.local import (
    LocalHybridStore,
    follower,
    lexical,
    postings,
    transaction,
    vectors,
)
from llama_index_hybrid_pack.testing.builders import embed
from tests.store_states import State, assert_holds, nodes_of

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and POSIX signals")

OLD: State = {"a": "red apple", "b": "green pear", "c": "blue plum", "d": "red rose"}
NEW: State = {"a": "red apple", "b": "yellow banana", "c": "blue plum", "e": "white lily"}
#: Kills at random moments; HYBRID_PACK_KILLS=500 for a long run.
KILLS = int(os.environ.get("HYBRID_PACK_KILLS", "10"))

STEPS = [
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
    (lexical.LexicalIndex, "rebuild"),
    (follower.LexicalFollower, "adopt_own_write"),
    (vectors.VectorFile, "catch_up"),
    (vectors, "write_state"),
    (vectors, "_checksums"),
    (os, "fsync"),
    (Path, "replace"),
]
STEPS = [(*step, 1) for step in STEPS] + [
    (postings.PostingsSession, "commit", 2),
    (os, "fsync", 2),
    (Path, "replace", 2),
]


@contextmanager
def child(run: Callable[[], None]) -> Iterator[int]:
    """Run a function in a forked process; yields its process id."""
    with warnings.catch_warnings():
        # The libraries' worker threads hold nothing that the child needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            run()
            code = 0
        finally:
            os._exit(code)
    try:
        yield pid
    finally:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def ended_by(pid: int) -> int:
    """Signal or minus exit code with which a child ended."""
    status = os.waitpid(pid, 0)[1]
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)


def write(store: LocalHybridStore) -> None:
    changed = {node_id: text for node_id, text in NEW.items() if OLD.get(node_id) != text}
    store.apply(nodes_of(changed), delete_node_ids=["d"])


def kill_at(owner: object, name: str, when: str, call: int) -> None:
    """Have this process killed at the given call of a step."""
    original = getattr(owner, name)
    calls = iter(range(1, call + 1))

    def step(*args: object, **kwargs: object) -> object:
        number = next(calls, None)
        if number == call and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if number == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, step)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("owner", "name", "call"), STEPS, ids=str)
def test_kill_at_every_step(tmp_path: Path, owner: object, name: str, when: str, call: int) -> None:
    path = tmp_path / "store"
    with LocalHybridStore(path) as store:
        store.add(nodes_of(OLD))

    def run() -> None:
        store = LocalHybridStore(path)
        kill_at(owner, name, when, call)
        write(store)
        os.kill(os.getpid(), signal.SIGTERM)  # this step is not reached so often

    with child(run) as pid:
        killed = ended_by(pid)
    assert killed in {signal.SIGKILL, signal.SIGTERM}
    assert killed == signal.SIGKILL or call > 1  # each step is reached
    with LocalHybridStore(path, read_only=True) as store:
        new = store.get_nodes(["e"]) != []
        assert_holds(store, NEW if new else OLD)
    with LocalHybridStore(path) as store:
        assert_holds(store, NEW if new else OLD)
        if not new:
            write(store)
        assert_holds(store, NEW)
        store.optimize()
        assert_holds(store, NEW)


@pytest.mark.parametrize("seed", range(KILLS))
def test_kill_at_a_random_moment(tmp_path: Path, seed: int) -> None:
    """What was acknowledged is there; the write that was cut off is there whole or not at all."""
    chance = random.Random(seed)
    path = tmp_path / "store"
    LocalHybridStore(path).close()
    reading, writing = os.pipe()

    def batch(number: int) -> State:
        return {f"b{number}-{item}": f"batch{number} text" for item in range(3)} | {
            "shared": f"version{number} of one node"
        }

    def run() -> None:
        with LocalHybridStore(path) as store:
            for number in range(10_000):
                gone = [f"b{number - 2}-0"] if number > 1 else []
                store.apply(nodes_of(batch(number)), delete_node_ids=gone)
                if number % 7 == 6:
                    store.optimize()
                os.write(writing, b".")

    with child(run) as pid:
        time.sleep(0.05 + chance.random())
        os.kill(pid, signal.SIGKILL)
        ended_by(pid)
    os.close(writing)
    acknowledged = len(os.read(reading, 100_000))
    os.close(reading)

    def state(batches: int) -> State:
        found: dict[str, str] = {}
        for number in range(batches):
            found.update(batch(number))
            found.pop(f"b{number - 2}-0", None)
        return found

    with LocalHybridStore(path) as store:
        done = acknowledged + (store.get_nodes([f"b{acknowledged}-1"]) != [])
        assert_holds(store, state(done))
        store.add(nodes_of({"after": "the crash"}))
        assert_holds(store, {**state(done), "after": "the crash"})


def mounted(command: list[str]) -> None:
    """Mount, or skip the test where that is not allowed."""
    if shutil.which("mount") is None or subprocess.run(command, check=False).returncode:
        pytest.skip("needs the right to mount a file system")


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of a given size."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    mounted(mount)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_changes_nothing_and_a_retry_completes(tmp_path: Path) -> None:
    """The space runs out a little later each time, so that every step meets it."""
    with small_disk(tmp_path / "disk", "6m") as disk:
        path = disk / "store"
        store = LocalHybridStore(path)
        store.add(nodes_of(OLD))
        state = dict(OLD)
        messages: list[str] = []
        filler = disk / "filler"
        for number in range(0, 90, 2):
            filler.unlink(missing_ok=True)
            free = shutil.disk_usage(disk).free
            left = 4096 * number
            filler.write_bytes(b"\0" * max(0, free - left))
            more = {f"x{number}": f"text {number}", "a": f"red apple {number}"}
            try:
                store.add(nodes_of(more))
            except StoreWriteError as error:
                messages.append(str(error))
            else:
                state.update(more)
            assert_holds(store, state)
        assert len(messages) > 5
        assert all("nothing was changed" in text or "before anything" in text for text in messages)
        assert len(state) > len(OLD) + 5
        filler.unlink()
        assert shutil.disk_usage(disk).free > 2_000_000  # failed writes leave nothing behind
        store.add(nodes_of({"retry": "completes"}))
        state["retry"] = "completes"
        assert_holds(store, state)
        store.close()
        with LocalHybridStore(path) as store:
            assert_holds(store, state)


def test_a_file_size_limit_changes_nothing(tmp_path: Path) -> None:
    """A limit on file sizes hits the log of the table, whatever the user's rights."""
    path = tmp_path / "store"
    with LocalHybridStore(path) as store:
        store.add(nodes_of(OLD))

    def run() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        store = LocalHybridStore(path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))
        many = {f"m{number}": "text " * 50 for number in range(500)}
        with pytest.raises(StoreWriteError):
            store.add(nodes_of(many))
        assert_holds(store, OLD)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        write(store)
        assert_holds(store, NEW)
        store.close()

    with child(run) as pid:
        assert ended_by(pid) == 0
    with LocalHybridStore(path) as store:
        assert_holds(store, NEW)


@contextmanager
def mounted_read_only(folder: Path) -> Iterator[Path]:
    bind = ["mount", "--bind", str(folder), str(folder)]
    again = ["mount", "-o", "remount,bind,ro", str(folder)]
    mounted(bind)
    try:
        subprocess.run(again, check=True, capture_output=True)
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("indexes", ["kept", "gone"])
def test_a_folder_that_cannot_be_written(tmp_path: Path, indexes: str) -> None:
    path = tmp_path / "store"
    with LocalHybridStore(path) as store:
        store.add(nodes_of(OLD))
    if indexes == "gone":
        shutil.rmtree(path / "lexical")
        shutil.rmtree(path / "dense")
    with mounted_read_only(path):
        with LocalHybridStore(path, read_only=True) as store:
            assert_holds(store, OLD)
            with pytest.raises(StoreWriteError, match="read_only=True"):
                write(store)
        with pytest.raises(StoreError, match="read_only=True"):
            LocalHybridStore(path)
    with LocalHybridStore(path) as store:
        write(store)
        assert_holds(store, NEW)


def test_a_second_writer_waits_and_then_gives_up(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with LocalHybridStore(path) as store:
        store.add(nodes_of(OLD))
    reading, writing = os.pipe()

    def run() -> None:
        with LocalHybridStore(path) as store, store.client.lock.held():
            os.write(writing, b".")
            time.sleep(60)

    with child(run):
        os.read(reading, 1)
        with LocalHybridStore(path, lock_timeout=0.2) as store:
            with pytest.raises(StoreLockedError, match=r"write\.lock"):
                write(store)
            # A reader does not wait for it.
            assert_holds(store, OLD)
    with LocalHybridStore(path, lock_timeout=0.2) as store:
        write(store)  # the lock went with its holder
        assert_holds(store, NEW)
    os.close(reading)
    os.close(writing)


def test_writers_of_several_processes_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "store"
    LocalHybridStore(path).close()

    def write_some(name: str) -> None:
        with LocalHybridStore(path) as store:
            for number in range(8):
                store.add(nodes_of({f"{name}{number}": f"text of {name}"}))

    with child(lambda: write_some("p")) as first, child(lambda: write_some("q")) as second:
        write_some("r")
        assert ended_by(first) == 0
        assert ended_by(second) == 0
    with LocalHybridStore(path) as store:
        assert_holds(
            store, {f"{name}{number}": f"text of {name}" for name in "pqr" for number in range(8)}
        )


def test_a_reader_sees_whole_writes_of_another_process_at_its_next_query(tmp_path: Path) -> None:
    """Each write replaces all nodes: both legs must always show one version, and the newest."""
    path = tmp_path / "store"
    size = 12

    def version(number: int) -> State:
        return {f"n{item}": f"version{number} text" for item in range(size)}

    with LocalHybridStore(path) as store:
        store.add(nodes_of(version(0)))
    done = multiprocessing.Value("i", 0)

    def run() -> None:
        with LocalHybridStore(path) as store:
            for number in range(1, 16):
                store.add(nodes_of(version(number)))
                done.value = number

    with child(run) as pid, LocalHybridStore(path, read_only=True) as store:
        looks = 0
        while done.value < 15:
            least = done.value
            found = store.search(
                SearchRequest(
                    query_str="text",
                    query_embedding=embed("text"),
                    lexical_top_k=99,
                    dense_top_k=99,
                )
            )
            assert sorted(found.legs[BM25].ids) == sorted(version(0))
            assert sorted(found.legs[DENSE].ids) == sorted(version(0))
            (newest,) = {node.text.split()[0] for node in store.get_nodes()}
            assert int(newest.removeprefix("version")) >= least
            looks += 1
        assert ended_by(pid) == 0
        assert looks > 3
        assert_holds(store, version(15))


def test_a_forked_child_opens_the_store_anew(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with LocalHybridStore(path) as store:
        store.add(nodes_of(OLD))
        assert_holds(store, OLD)

        def run() -> None:
            assert_holds(store, OLD)
            write(store)
            assert_holds(store, NEW)

        with child(run) as pid:
            assert ended_by(pid) == 0
        assert_holds(store, NEW)
