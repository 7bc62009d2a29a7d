from __future__ import annotations

import copy
import json
import pickle

import pytest
from llama_index.core.base.embeddings.base import mean_agg
from llama_index.core.schema import MetadataMode, QueryBundle
from llama_index.core.settings import Settings

from llama_index_hybrid_pack.errors import ConfigError, EmbeddingError, FilterError
from llama_index_hybrid_pack.indexing.stores.local import LocalHybridStore
from llama_index_hybrid_pack.metadata import STAGES_KEY, stage_scores
from llama_index_hybrid_pack.observability.events import StageEndEvent
from llama_index_hybrid_pack.retrieval.store import StoreRetriever, embed_query
from llama_index_hybrid_pack.testing.builders import (
    all_of,
    any_of,
    condition,
    embed,
    embed_model,
    make_node,
    where,
)

FRUIT = {
    "f1": ("apple crumble", "red"),
    "f2": ("apple share price", "blue"),
    "f3": ("banana loaf", "red"),
    "f4": ("shirt sale", "blue"),
    "f5": ("orchard tips", "green"),
}


@pytest.fixture(scope="module")
def store():
    with LocalHybridStore() as store:
        store.add(
            [
                make_node(name, text, doc_id=f"doc-{name}", metadata={"tenant": tenant})
                for name, (text, tenant) in FRUIT.items()
            ]
        )
        yield store


@pytest.fixture
def empty_store():
    with LocalHybridStore() as store:
        yield store


def dense(store, **options):
    return StoreRetriever(store, leg="dense", **{"embed_model": embed_model(), **options})


def bm25(store, **options):
    return StoreRetriever(store, leg="bm25", **options)


def ids(hits):
    return [hit.node_id for hit in hits]


# -- what a leg finds


def test_dense_hits_come_by_cosine_with_rank_and_scale(store) -> None:
    hits = dense(store, similarity_top_k=2).retrieve("apple crumble")
    assert ids(hits)[0] == "f1"
    assert hits[0].score == pytest.approx(1.0, abs=1e-5)
    assert stage_scores(hits[1].node)["dense"] == {
        "score": hits[1].score, "rank": 2, "scale": "cosine"
    }  # fmt: skip


def test_bm25_gives_only_nodes_with_a_word_of_the_query(store, cases_dir) -> None:
    case = json.loads((cases_dir / "B12.json").read_text())["input"]
    assert bm25(store, similarity_top_k=case["top_k"]).retrieve(case["query"]) == []
    hits = bm25(store, similarity_top_k=5).retrieve("apple")
    assert sorted(ids(hits)) == ["f1", "f2"]
    assert all(hit.score > 0 for hit in hits)


def test_the_stage_record_is_in_neither_embedding_text_nor_llm_text(store) -> None:
    node = bm25(store).retrieve("apple")[0].node
    for mode in (MetadataMode.EMBED, MetadataMode.LLM):
        assert STAGES_KEY not in node.get_content(mode)


def test_scores_can_be_written_as_json(store) -> None:
    for retriever in (dense(store), bm25(store)):
        hits = retriever.retrieve("apple")
        assert json.loads(json.dumps([hit.score for hit in hits])) == [hit.score for hit in hits]
        assert all(type(hit.score) is float for hit in hits)


@pytest.mark.parametrize("query", ["", "   ", "\n"])
def test_a_blank_query_finds_nothing(store, query) -> None:
    assert dense(store).retrieve(query) == []
    assert bm25(store).retrieve(query) == []


async def test_sync_and_async_give_the_same(store) -> None:
    for retriever in (dense(store), bm25(store)):
        sync, asynchronous = retriever.retrieve("apple"), await retriever.aretrieve("apple")
        assert [(h.node_id, h.score, h.metadata) for h in asynchronous] == [
            (h.node_id, h.score, h.metadata) for h in sync
        ]


def test_an_event_says_what_the_leg_did(store, events) -> None:
    bm25(store).retrieve("apple")
    ours = {event.stage: event for event in events if isinstance(event, StageEndEvent)}
    assert ours["bm25"].n_out == 2


# -- which text goes to which leg


def test_text_meant_for_embedding_never_reaches_bm25(empty_store, cases_dir) -> None:
    case = json.loads((cases_dir / "B30.json").read_text())["input"]
    store = empty_store
    store.add([make_node("hyde", case["hyde"]), make_node("original", case["original"])])
    bundle = QueryBundle(case["original"], custom_embedding_strs=[case["hyde"]])
    assert ids(dense(store, similarity_top_k=1).retrieve(bundle)) == ["hyde"]
    assert ids(bm25(store, similarity_top_k=1).retrieve(bundle)) == ["original"]


def test_several_texts_are_embedded_as_their_mean(store) -> None:
    texts = ["banana loaf", "orchard tips"]
    bundle = embed_query(QueryBundle("q", custom_embedding_strs=texts), embed_model())
    assert bundle.embedding == pytest.approx(mean_agg([embed(text) for text in texts]))
    found = dense(store, similarity_top_k=2).retrieve(bundle)
    assert sorted(ids(found)) == ["f3", "f5"]


@pytest.mark.parametrize("custom", [[], [""], ["", "  "]])
def test_an_expansion_that_came_out_empty_leaves_the_query(custom) -> None:
    bundle = embed_query(QueryBundle("banana loaf", custom_embedding_strs=custom), embed_model())
    assert bundle.embedding == embed("banana loaf")


def test_a_given_embedding_is_used_and_nothing_is_embedded(store) -> None:
    bundle = QueryBundle("apple", embedding=embed("orchard tips"))
    assert ids(dense(store, similarity_top_k=1, embed_model=None).retrieve(bundle)) == ["f5"]


async def test_the_callers_bundle_is_not_written_to(store) -> None:  # F38
    bundle = QueryBundle("apple", custom_embedding_strs=["apple crumble"])
    before = copy.deepcopy(bundle)
    dense(store).retrieve(bundle)
    await dense(store).aretrieve(bundle)
    assert bundle == before
    assert bundle.embedding is None


# -- embedding model


def test_without_a_model_the_error_says_what_to_do(store, monkeypatch) -> None:
    monkeypatch.setattr(Settings, "_embed_model", None)
    with pytest.raises(ConfigError, match=r"Settings\.embed_model"):
        dense(store, embed_model=None).retrieve("apple")


def test_a_model_set_in_settings_later_is_used(store, monkeypatch) -> None:
    monkeypatch.setattr(Settings, "_embed_model", None)
    retriever = dense(store, embed_model=None, similarity_top_k=1)
    monkeypatch.setattr(Settings, "_embed_model", embed_model())
    assert ids(retriever.retrieve("orchard tips")) == ["f5"]


def test_a_query_vector_of_another_dimension_is_an_error(store) -> None:
    with pytest.raises(EmbeddingError):
        dense(store).retrieve(QueryBundle("apple", embedding=[1.0, 0.0]))


# -- filters


@pytest.mark.parametrize("make", [dense, bm25])
def test_only_the_filtered_tenant_comes_back(store, make, cases_dir) -> None:
    case = json.loads((cases_dir / "B36.json").read_text())
    for top_k in case["input"]["top_k"]:
        retriever = make(store, similarity_top_k=top_k, filters=where("tenant", "red"))
        hits = retriever.retrieve(case["input"]["query"])
        assert hits
        assert {hit.metadata["tenant"] for hit in hits} == set(case["expected"]["only_tenants"])
    nobody = make(store, filters=where("tenant", "nobody"))
    assert nobody.retrieve(case["input"]["query"]) == case["expected"]["no_match_tenant"]


@pytest.mark.parametrize("make", [dense, bm25])
def test_nested_filters_are_honoured(empty_store, make, cases_dir) -> None:
    case = json.loads((cases_dir / "B35.json").read_text())
    empty_store.add(
        [
            make_node(name, "same words", metadata=meta)
            for name, meta in case["input"]["docs"].items()
        ]
    )
    nested = any_of(
        all_of(condition("fruit", "apple"), condition("ts", 100, ">")),
        condition("fruit", ["banana", "orange"], "in"),
    )
    hits = make(empty_store, filters=nested).retrieve("same words")
    assert sorted(ids(hits)) == case["expected"]["matches"]


@pytest.mark.parametrize("make", [dense, bm25])
def test_node_and_document_ids_restrict_the_search(store, make) -> None:  # F18
    assert ids(make(store, node_ids=["f2"]).retrieve("apple")) == ["f2"]
    assert ids(make(store, doc_ids=["doc-f1"]).retrieve("apple")) == ["f1"]
    assert make(store, node_ids=[]).retrieve("apple") == []
    assert make(store, doc_ids=["other"]).retrieve("apple") == []


@pytest.mark.parametrize("make", [dense, bm25])
def test_an_unknown_field_is_refused(store, make) -> None:
    with pytest.raises(FilterError, match="colour"):
        make(store, filters=where("colour", "red")).retrieve("apple")


# -- scope


@pytest.mark.parametrize("make", [dense, bm25])
def test_a_scope_narrows_one_view_and_leaves_the_retriever(store, make) -> None:
    retriever = make(store, similarity_top_k=5, filters=where("tenant", ["red", "blue"], "in"))
    view = retriever.scoped(filters=where("tenant", "blue"), top_k=1)
    assert ids(view.retrieve("apple")) == ["f2"]
    assert {"f1", "f2"} <= set(ids(retriever.retrieve("apple")))
    assert retriever.similarity_top_k == 5
    assert view.store is retriever.store


@pytest.mark.parametrize("make", [dense, bm25])
def test_a_scope_cannot_widen(store, make) -> None:
    retriever = make(store, filters=where("tenant", "red"))
    view = retriever.scoped(filters=where("tenant", ["red", "blue", "green"], "in"))
    assert {hit.metadata["tenant"] for hit in view.retrieve("apple")} == {"red"}
    assert make(store, filters=where("tenant", "red")).scoped(
        filters=where("tenant", "blue")
    ).retrieve("apple") == []  # fmt: skip


# -- construction and copies


@pytest.mark.parametrize("top_k", [0, -1, 1.5, True, None, "3"])
def test_an_impossible_number_of_hits_is_refused(store, top_k) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        bm25(store, similarity_top_k=top_k)


def test_an_unknown_leg_is_refused(store) -> None:
    with pytest.raises(ConfigError, match="'sparse'"):
        StoreRetriever(store, leg="sparse")  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["node_ids", "doc_ids"])
def test_ids_as_one_string_are_refused(store, option) -> None:
    with pytest.raises(ConfigError, match="list of ids"):
        bm25(store, **{option: "f1"})


@pytest.mark.parametrize("make", [dense, bm25])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))])
def test_copies_find_the_same(tmp_path, make, copied) -> None:
    with LocalHybridStore(tmp_path / "store") as store:
        store.add([make_node("a", "apple pie"), make_node("k", "kiwi")])
        retriever = make(store, similarity_top_k=1)
        assert ids(copied(retriever).retrieve("apple")) == ids(retriever.retrieve("apple")) == ["a"]
        assert StoreRetriever.class_name() == "StoreRetriever"
