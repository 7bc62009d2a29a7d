"""Store contract: data outlive the object, copies work, threads and event loops live with it."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery

from llama_index_hybrid_pack.testing.builders import embed, make_node, where
from llama_index_hybrid_pack.testing.store_contract.base import (
    Calls,
    ContractBase,
    StoreFactory,
)

_TEXTS = ["apple pie", "banana bread", "cherry tart", "apple juice", "plum jam"]


class DurabilityContract(ContractBase):
    """What must hold over time and between threads."""

    def _fill(self, store: BasePydanticVectorStore, calls: Calls) -> None:
        calls.add(
            store,
            [
                make_node(f"n{i}", text, doc_id=f"d{i % 2}", metadata={"part": i})
                for i, text in enumerate(_TEXTS)
            ],
        )

    def _answers(self, store: BasePydanticVectorStore, calls: Calls) -> list[object]:
        found: list[object] = []
        for mode in self.modes():
            for filters in (None, where("part", 1, ">=")):
                answer = calls.ask(store, "apple banana", mode=mode, filters=filters)
                found.append((mode, answer.ids, answer.scores))
        return found

    def test_a_closed_store_opens_with_the_same_answers(
        self, make_store: StoreFactory, calls: Calls
    ) -> None:
        """Ids and scores, in every mode, with and without filter; then it can be written to."""
        self.require("supports_reopen")
        first = make_store()
        self._fill(first, calls)
        before = self._answers(first, calls)
        self.close(first)
        second = make_store()
        assert self._answers(second, calls) == before
        calls.add(second, [make_node("new", "quince", metadata={"part": 9})])
        assert calls.ask(second, "quince", k=1).ids == ["new"]
        self.close(second)

    def test_deleted_and_replaced_nodes_do_not_come_back(
        self, make_store: StoreFactory, calls: Calls
    ) -> None:
        """The last state is what a reopened store shows."""
        self.require("supports_reopen")
        first = make_store()
        self._fill(first, calls)
        calls.delete(first, "d0")
        calls.add(first, [make_node("n1", "quince", doc_id="d1", metadata={"part": 1})])
        before = self._answers(first, calls)
        self.close(first)
        second = make_store()
        assert self._answers(second, calls) == before
        for mode in self.modes():
            assert set(calls.ask(second, "apple quince", mode=mode).ids) <= {"n1", "n3"}, mode
        self.close(second)

    def test_a_store_that_was_never_closed_opens_again(
        self, make_store: StoreFactory, calls: Calls
    ) -> None:
        """A process that dies closes nothing; a write that returned is kept."""
        self.require("supports_reopen", "supports_second_handle")
        first = make_store()
        self._fill(first, calls)
        second = make_store()
        assert self._answers(second, calls) == self._answers(first, calls)
        self.close(second)
        self.close(first)

    def test_a_second_handle_sees_every_finished_write(
        self, make_store: StoreFactory, calls: Calls
    ) -> None:
        """At its next query, in every mode."""
        self.require("supports_reopen", "supports_second_handle")
        writer, reader = make_store(), make_store()
        for step in range(3):
            calls.add(writer, [make_node(f"n{step}", f"apple {step}", doc_id=f"d{step}")])
            for mode in self.modes():
                assert len(calls.ask(reader, "apple", mode=mode).ids) == step + 1, mode
        calls.delete(writer, "d1")
        for mode in self.modes():
            assert set(calls.ask(reader, "apple", mode=mode).ids) == {"n0", "n2"}, mode
        self.close(reader)
        self.close(writer)

    @pytest.mark.parametrize("how", ["pickle", "deepcopy"])
    def test_a_copy_of_the_store_answers_alike(
        self, store: BasePydanticVectorStore, calls: Calls, how: str
    ) -> None:
        """LlamaIndex copies components, and worker processes are sent them pickled."""
        self.require("supports_pickle")
        self._fill(store, calls)
        twin = _copied(store, how)
        assert type(twin) is type(store)
        assert self._answers(twin, calls) == self._answers(store, calls)
        self.close(twin)

    def test_the_class_has_a_name_of_its_own(self, store: BasePydanticVectorStore) -> None:
        """LlamaIndex tells serialised components apart by it."""
        assert store.class_name() not in {
            "base_component",
            "BasePydanticVectorStore",
            "HybridStore",
        }

    def test_readers_see_whole_batches_while_another_thread_writes(
        self, store: BasePydanticVectorStore
    ) -> None:
        """No error, no half batch, no other tenant's node."""
        self.require("supports_threads")
        store.add([make_node("start", "apple", metadata={"batch": -1, "tenant": "blue"})])
        problems: list[object] = []
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                for mode in self.modes():
                    query = VectorStoreQuery(
                        query_str="apple",
                        query_embedding=embed("apple"),
                        similarity_top_k=200,
                        mode=mode,
                        filters=where("tenant", "red"),
                    )
                    try:
                        ids = list(store.query(query).ids or [])
                    except Exception as error:  # reported below, whatever it is
                        problems.append(error)
                        return
                    batches = [node_id.split("-")[0] for node_id in ids]
                    if any(batches.count(batch) != 5 for batch in batches):
                        problems.append((mode, ids))

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        try:
            for batch in range(12):
                nodes = [
                    make_node(
                        f"b{batch}-{i}",
                        f"apple {batch}",
                        doc_id=f"d{batch}",
                        metadata={"batch": batch, "tenant": "red"},
                    )
                    for i in range(5)
                ]
                store.add(nodes)
                if batch % 3 == 2:
                    store.delete(f"d{batch - 1}")
        finally:
            done.set()
            for reader in readers:
                reader.join(timeout=60)
        assert problems == []

    def test_several_threads_may_write(self, store: BasePydanticVectorStore) -> None:
        """Every write that returned is there."""
        self.require("supports_threads")
        problems: list[BaseException] = []

        def write(worker: int) -> None:
            try:
                for step in range(5):
                    store.add([make_node(f"w{worker}-{step}", "apple")])
            except Exception as error:  # reported below, whatever it is
                problems.append(error)

        writers = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(timeout=60)
        assert problems == []
        query = VectorStoreQuery(query_embedding=embed("apple"), similarity_top_k=100)
        assert len(store.query(query).ids or []) == 20

    def test_async_calls_leave_the_event_loop_free(self, store: BasePydanticVectorStore) -> None:
        """While a store works, other tasks of the loop go on."""
        query = VectorStoreQuery(
            query_str="apple", query_embedding=embed("apple"), similarity_top_k=5
        )
        turns = asyncio.run(_turns_of_the_loop(store, query))
        for call, count in turns.items():
            assert count > 0, f"{call} kept the event loop to itself"


def _copied(store: BasePydanticVectorStore, how: str) -> Any:
    if how == "pickle":
        return pickle.loads(pickle.dumps(store))  # noqa: S301 - our own bytes
    return copy.deepcopy(store)


async def _turns_of_the_loop(
    store: BasePydanticVectorStore, query: VectorStoreQuery
) -> dict[str, int]:
    """Return how often another task got its turn during each awaited call."""
    count = 0

    async def heartbeat() -> None:
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(heartbeat())
    turns: dict[str, int] = {}
    try:
        for name, call in _async_calls(store, query):
            await asyncio.sleep(0)
            before = count
            await call
            turns[name] = count - before
    finally:
        task.cancel()
    return turns


def _async_calls(
    store: BasePydanticVectorStore, query: VectorStoreQuery
) -> Iterator[tuple[str, Awaitable[object]]]:
    yield "async_add", store.async_add([make_node(f"n{i}", "apple") for i in range(50)])
    yield "aquery", store.aquery(query)
    yield "adelete", store.adelete("unknown")
    yield "adelete_nodes", store.adelete_nodes(node_ids=["n1"])
