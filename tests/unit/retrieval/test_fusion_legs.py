"""How the legs run: in parallel, off the event loop, each failing for itself."""

from __future__ import annotations

import asyncio
import contextvars
import json
import time

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.indices.query.query_transform.base import IdentityQueryTransform
from llama_index.core.retrievers import QueryFusionRetriever, TransformRetriever
from llama_index.core.schema import QueryBundle
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.retrievers.bm25 import BM25Retriever

from llama_index_hybrid_pack.errors import (
    AccessDeniedError,
    ConfigError,
    FilterError,
    RetrievalError,
)
from llama_index_hybrid_pack.metadata import stage_scores
from llama_index_hybrid_pack.observability.events import FallbackEvent
from llama_index_hybrid_pack.retrieval.bm25 import IdentifierBM25Retriever
from llama_index_hybrid_pack.retrieval.fusion import HybridFusionRetriever
from llama_index_hybrid_pack.testing.builders import make_node, where
from llama_index_hybrid_pack.testing.fakes import HashEmbedding, ScriptedLLM
from tests.unit.retrieval.static import AsyncFailing, AsyncStatic, Failing, Static, hit, ids, ranked


def fusion(*retrievers, **options):
    return HybridFusionRetriever(retrievers, **{"mode": "rrf", **options})


async def ticks_during(coroutine) -> tuple[int, float, object]:
    """Run a coroutine; return beats of 10 ms meanwhile, seconds, and the result."""
    beats = 0

    async def heart() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    task = asyncio.create_task(heart())
    start = time.perf_counter()
    result = await coroutine
    seconds = time.perf_counter() - start
    task.cancel()
    return beats, seconds, result


# -- side by side


async def test_sync_legs_run_in_parallel_and_leave_the_loop_free(cases_dir) -> None:  # F16
    case = json.loads((cases_dir / "B55.json").read_text())
    arms = [
        Static([hit(f"n{i}")], delay=arm["sleep_s"]) for i, arm in enumerate(case["input"]["arms"])
    ]
    beats, seconds, hits = await ticks_during(fusion(*arms).aretrieve("q"))
    assert ids(hits) == ["n0", "n1"]
    assert seconds < case["expected"]["elapsed_lt_s"]
    assert beats > case["expected"]["heartbeats_gt"] / 2  # the test machine may be busy


async def test_true_async_legs_run_beside_sync_ones() -> None:
    arms = [AsyncStatic([hit("a")], delay=0.2), Static([hit("b")], delay=0.2)]
    _, seconds, hits = await ticks_during(fusion(*arms).aretrieve("q"))
    assert ids(hits) == ["a", "b"]
    assert seconds < 0.35


def test_sync_calls_run_the_legs_in_parallel() -> None:
    arms = [Static([hit(f"n{i}")], delay=0.2) for i in range(3)]
    start = time.perf_counter()
    fusion(*arms).retrieve("q")
    assert time.perf_counter() - start < 0.45


async def test_a_transforming_leg_does_not_block_the_loop() -> None:  # F34
    class Slow(IdentityQueryTransform):
        def _run(self, query_bundle, metadata):
            time.sleep(0.2)
            return query_bundle

    leg = TransformRetriever(ranked("a"), Slow())
    beats, _, hits = await ticks_during(fusion(leg, ranked("b")).aretrieve("q"))
    assert ids(hits) == ["a", "b"]
    assert beats > 5


async def test_a_vector_store_without_async_does_not_block_the_loop() -> None:
    class Slow(SimpleVectorStore):
        def query(self, query, **kwargs):
            time.sleep(0.2)
            return super().query(query, **kwargs)

    index = VectorStoreIndex([make_node("a", "apple")], embed_model=HashEmbedding(dimensions=32))
    leg = index.as_retriever()
    leg._vector_store = Slow(data=index.vector_store.data)
    beats, _, hits = await ticks_during(fusion(leg).aretrieve("apple"))
    assert ids(hits) == ["a"]
    assert beats > 5


def test_more_legs_than_threads_all_answer() -> None:
    assert (
        len(fusion(*[ranked(f"n{i:02}") for i in range(40)], similarity_top_k=99).retrieve("q"))
        == 40
    )


def test_each_leg_sees_the_callers_context() -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")

    class ByUser(Static):
        def _retrieve(self, query_bundle):
            return [hit(user.get())]

    user.set("ann")
    assert ids(fusion(ByUser([]), ByUser([])).retrieve("q")) == ["ann"]


# -- one embedding


class Counting(HashEmbedding):
    calls: int = 0

    def _get_query_embedding(self, query: str) -> list[float]:
        self.calls += 1
        return super()._get_query_embedding(query)


async def test_the_query_is_embedded_once_for_legs_that_share_a_model() -> None:
    model = Counting(dimensions=32)
    legs = [
        VectorStoreIndex([make_node(name, name)], embed_model=model).as_retriever()
        for name in ("apple", "kiwi", "plum")
    ]
    retriever = fusion(*legs)
    retriever.retrieve("apple")
    assert model.calls == 1
    await retriever.aretrieve("apple")
    assert model.calls == 2


async def test_legs_with_models_of_their_own_each_get_their_vector() -> None:
    legs = []
    for size in (8, 16):
        model = HashEmbedding(dimensions=size)
        node = make_node(f"n{size}", "apple", embedding=model.get_text_embedding("apple"))
        legs.append(VectorStoreIndex([node], embed_model=model).as_retriever())
    retriever = fusion(*legs)
    for hits in (retriever.retrieve("apple"), await retriever.aretrieve("apple")):
        assert sorted(ids(hits)) == ["n16", "n8"]


async def test_a_query_with_custom_strings_embeds_those_on_both_paths() -> None:
    index = VectorStoreIndex(
        [make_node("a", "apple"), make_node("k", "kiwi")], embed_model=HashEmbedding(dimensions=32)
    )
    words = IdentifierBM25Retriever([make_node("a", "apple"), make_node("k", "kiwi")])
    retriever = fusion(index.as_retriever(similarity_top_k=1), words)
    bundle = QueryBundle("apple", custom_embedding_strs=["kiwi"])
    for hits in (retriever.retrieve(bundle), await retriever.aretrieve(bundle)):
        found = {found.node_id: stage_scores(found.node) for found in hits}
        assert "dense" in found["k"]
        assert "bm25" not in found["k"]
        assert "bm25" in found["a"]
        assert "dense" not in found["a"]


# -- failures


@pytest.mark.parametrize("failing", [Failing, AsyncFailing])
async def test_a_failing_leg_is_left_out_and_reported(failing, events, caplog) -> None:  # F13
    error = RuntimeError("backend down: secret text")
    retriever = fusion(ranked("a"), failing(error), names=["good", "bad"])
    assert ids(await retriever.aretrieve("q")) == ["a"]
    assert ids(retriever.retrieve("q")) == ["a"]
    fallbacks = [event for event in events if isinstance(event, FallbackEvent)]
    assert [(f.stage, f.error_type, f.message) for f in fallbacks] == [
        ("bad", "RuntimeError", "backend down: secret text")
    ] * 2
    assert "bad" in caplog.text
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("failing", [Failing, AsyncFailing])
async def test_with_on_error_raise_the_legs_own_error_comes_out(failing) -> None:
    error = ConnectionError("backend down")
    retriever = fusion(ranked("a"), failing(error), on_error="raise")
    with pytest.raises(ConnectionError, match="backend down"):
        retriever.retrieve("q")
    with pytest.raises(ConnectionError, match="backend down"):
        await retriever.aretrieve("q")


async def test_when_all_legs_fail_the_error_names_each_cause() -> None:
    errors = [RuntimeError("first down"), ConnectionError("second down")]
    retriever = fusion(Failing(errors[0]), AsyncFailing(errors[1]), names=["one", "two"])
    for call in (lambda: retriever.retrieve("q"), lambda: asyncio.run(retriever.aretrieve("q"))):
        with pytest.raises(RetrievalError, match=r"one.*first down.*two.*second down") as caught:
            await asyncio.to_thread(call)
        assert caught.value.__cause__ is errors[0]


def test_a_failing_leg_of_weight_0_fails_nothing() -> None:
    retriever = fusion(ranked("a"), Failing(RuntimeError()), weights=[1, 0], on_error="raise")
    assert ids(retriever.retrieve("q")) == ["a"]


@pytest.mark.parametrize(
    "error",
    [FilterError("no"), AccessDeniedError("no"), ConfigError("no")],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize("failing", [Failing, AsyncFailing])
async def test_safety_and_setup_are_never_covered_up_by_the_other_legs(failing, error) -> None:
    retriever = fusion(ranked("a"), failing(error), on_error="fallback")
    with pytest.raises(type(error)):
        retriever.retrieve("q")
    with pytest.raises(type(error)):
        await retriever.aretrieve("q")


# -- other people's retrievers


def test_zero_rows_of_bm25_earn_nothing(cases_dir) -> None:
    case = json.loads((cases_dir / "B12.json").read_text())["input"]
    nodes = [make_node(f"n{i}", text) for i, text in enumerate(case["docs"])]
    theirs = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=case["top_k"])
    assert len(theirs.retrieve(case["query"])) == case["top_k"]
    for mode in ("rrf", "weighted"):
        assert fusion(theirs, mode=mode).retrieve(case["query"]) == []
        hits = fusion(theirs, ranked("n9"), mode=mode).retrieve("apple")
        assert sorted(ids(hits)) == ["n0", "n1", "n9"]


def test_zero_rows_earn_nothing_through_a_wrapper_either() -> None:
    nodes = [make_node(name, name) for name in ("apple", "kiwi", "plum")]
    theirs = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=3)
    wrapped = TransformRetriever(theirs, IdentityQueryTransform())
    assert ids(fusion(wrapped).retrieve("apple")) == ["apple"]


@pytest.mark.parametrize("words", ["alpha", "secret"])
def test_a_filtered_bm25_leaks_nothing_through_the_fusion(words) -> None:  # F01, F02
    nodes = [
        make_node("1", "alpha report", metadata={"tenant": "A"}),
        make_node("2", "beta secret", metadata={"tenant": "B"}),
        make_node("3", "gamma", metadata={"tenant": "B"}),
    ]
    theirs = BM25Retriever.from_defaults(
        nodes=nodes, similarity_top_k=3, filters=where("tenant", "A")
    )
    assert "B" in {found.metadata["tenant"] for found in theirs.retrieve(words)}
    for mode in ("rrf", "weighted"):
        tenants = {f.metadata["tenant"] for f in fusion(theirs, mode=mode).retrieve(words)}
        assert tenants <= {"A"}


def test_a_zero_score_of_another_kind_of_leg_is_a_hit() -> None:
    assert ids(fusion(Static([hit("a", 0.0)])).retrieve("q")) == ["a"]


def test_llama_index_and_our_legs_are_named_by_kind_and_scale() -> None:
    nodes = [make_node("a", "apple"), make_node("k", "kiwi")]
    index = VectorStoreIndex(nodes, embed_model=HashEmbedding(dimensions=32))
    retriever = fusion(index.as_retriever(), IdentifierBM25Retriever(nodes))
    record = stage_scores(retriever.retrieve("apple")[0].node)
    scales = {name: entry["scale"] for name, entry in record.items()}
    assert scales == {"dense": "unknown", "bm25": "bm25", "fusion": "rank"}
    assert list(record)[-1] == "fusion"


def test_llama_indexs_own_fusion_can_be_a_leg() -> None:
    theirs = QueryFusionRetriever(
        [ranked("a")], llm=ScriptedLLM(answers=[""]), num_queries=1, use_async=True
    )
    assert ids(fusion(theirs, ranked("b")).retrieve("q")) == ["a", "b"]


def test_a_stale_record_does_not_give_its_scale_to_a_new_score() -> None:
    class Rescored(BaseRetriever):
        def _retrieve(self, query_bundle):
            found = IdentifierBM25Retriever([make_node("a", "apple")]).retrieve(query_bundle)
            found[0].score = 0.123
            return found

    record = stage_scores(fusion(Rescored(), names=["leg"]).retrieve("apple")[0].node)
    assert record["leg"]["scale"] == "unknown"
