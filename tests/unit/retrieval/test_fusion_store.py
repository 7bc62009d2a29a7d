"""HybridFusionRetriever over one hybrid store: one search, filters on both legs, trace."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from llama_index.core.schema import QueryBundle

from llama_index_hybrid_pack.errors import ConfigError, EmbeddingError, FilterError, RetrievalError
from llama_index_hybrid_pack.indexing.stores.local import LocalHybridStore
from llama_index_hybrid_pack.metadata import stage_scores
from llama_index_hybrid_pack.observability.events import StageEndEvent
from llama_index_hybrid_pack.retrieval.fusion import HybridFusionRetriever
from llama_index_hybrid_pack.retrieval.store import StoreRetriever
from llama_index_hybrid_pack.testing.builders import (
    all_of,
    any_of,
    condition,
    embed,
    embed_model,
    make_node,
    where,
)
from llama_index_hybrid_pack.testing.fakes import HashEmbedding
from tests.unit.retrieval.static import ids

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
                make_node(name, text, metadata={"tenant": tenant, "file_path": f"{name}.md"})
                for name, (text, tenant) in FRUIT.items()
            ]
        )
        yield store


@pytest.fixture
def empty_store():
    with LocalHybridStore() as store:
        yield store


@pytest.fixture
def searches(monkeypatch):
    """Every request that reaches a store, and every list of ids whose nodes are built."""
    seen = {"search": [], "nodes": []}
    search = LocalHybridStore.search

    def counted(self, request):
        seen["search"].append(request)
        result = search(self, request)
        fetch = result.fetch

        def counted_fetch(node_ids):
            seen["nodes"].append(list(node_ids))
            return fetch(node_ids)

        object.__setattr__(result, "fetch", counted_fetch)
        return result

    monkeypatch.setattr(LocalHybridStore, "search", counted)
    return seen


def hybrid(store, **options):
    return HybridFusionRetriever.from_store(store, **{"embed_model": embed_model(), **options})


# -- one search


async def test_one_search_serves_both_legs_and_only_survivors_are_built(store, searches) -> None:
    retriever = hybrid(store, leg_top_k=4, similarity_top_k=2)
    for hits in (retriever.retrieve("apple"), await retriever.aretrieve("apple")):
        assert sorted(ids(hits)) == ["f1", "f2"]
    assert len(searches["search"]) == 2
    request = searches["search"][0]
    assert request.query_str == "apple"
    assert request.query_embedding == embed("apple")
    assert (request.dense_top_k, request.lexical_top_k) == (4, 4)
    assert [len(node_ids) for node_ids in searches["nodes"]] == [2, 2]


def test_the_result_is_that_of_two_legs_of_their_own(store) -> None:
    class Apart(StoreRetriever):
        """Of another type, so that no search is shared."""

    legs = [Apart(store, leg="dense", embed_model=embed_model()), Apart(store, leg="bm25")]
    apart = HybridFusionRetriever(legs, weights=[0.5, 0.5]).retrieve("apple price")
    joint = hybrid(store).retrieve("apple price")
    assert [(h.node_id, h.score) for h in joint] == [(h.node_id, h.score) for h in apart]
    assert [stage_scores(h.node) for h in joint] == [stage_scores(h.node) for h in apart]


def test_legs_under_other_filters_are_searched_apart(store, searches) -> None:
    dense = StoreRetriever(
        store, leg="dense", embed_model=embed_model(), filters=where("tenant", "red")
    )
    bm25 = StoreRetriever(store, leg="bm25", filters=where("tenant", "blue"))
    hits = HybridFusionRetriever([dense, bm25]).retrieve("apple")
    assert len(searches["search"]) == 2
    for found in hits:
        legs = set(stage_scores(found.node)) - {"fusion"}
        assert legs == ({"dense"} if found.metadata["tenant"] == "red" else {"bm25"})


@pytest.mark.parametrize(("weight", "leg"), [(0.0, "bm25"), (1.0, "dense")])
def test_at_the_ends_of_the_weight_one_leg_is_not_searched(store, searches, weight, leg) -> None:
    hits = hybrid(store, dense_weight=weight).retrieve("apple")
    request = searches["search"][0]
    assert (request.query_embedding is None) is (leg == "bm25")
    assert (request.query_str is None) is (leg == "dense")
    assert {name for found in hits for name in stage_scores(found.node)} == {leg, "fusion"}


@pytest.mark.parametrize("mode", ["rrf", "weighted"])
async def test_sync_and_async_give_the_same(store, mode) -> None:
    retriever = hybrid(store, mode=mode)
    sync, asynchronous = retriever.retrieve("apple tips"), await retriever.aretrieve("apple tips")
    assert [(h.node_id, h.score, h.metadata) for h in sync] == [
        (h.node_id, h.score, h.metadata) for h in asynchronous
    ]


def test_each_leg_reports_its_hits(store, events) -> None:
    hybrid(store).retrieve("apple")
    ours = {event.stage: event.n_out for event in events if isinstance(event, StageEndEvent)}
    assert ours["bm25"] == 2
    assert ours["dense"] == 5
    assert ours["fusion"] == 5


def test_a_node_deleted_between_search_and_fetch_is_no_hit(empty_store, monkeypatch) -> None:
    empty_store.add([make_node("a", "apple"), make_node("b", "apple pie")])
    search = LocalHybridStore.search

    def deleting(self, request):
        result = search(self, request)
        self.delete_nodes(["a"])
        return result

    monkeypatch.setattr(LocalHybridStore, "search", deleting)
    hits = hybrid(empty_store).retrieve("apple")
    assert ids(hits) == ["b"]
    assert stage_scores(hits[0].node)["fusion"]["rank"] == 1


# -- queries


def test_expansions_reach_the_dense_leg_only_and_the_trace_names_all(
    empty_store, cases_dir
) -> None:
    case = json.loads((cases_dir / "B30.json").read_text())["input"]
    empty_store.add([make_node("hyde", case["hyde"]), make_node("original", case["original"])])
    bundle = QueryBundle(case["original"], custom_embedding_strs=[case["hyde"]])
    before = copy.deepcopy(bundle)
    retriever = hybrid(empty_store, leg_top_k=1)
    hits, trace = retriever.retrieve_with_trace(bundle)
    legs = {found.node_id: set(stage_scores(found.node)) for found in hits}
    assert legs == {"hyde": {"dense", "fusion"}, "original": {"bm25", "fusion"}}
    assert bundle == before  # F38
    assert trace.query == case["original"]
    assert {leg.name: leg.queries for leg in trace.legs} == {
        "dense": (case["hyde"],),
        "bm25": (case["original"],),
    }
    assert case["hyde"] in str(trace)


def test_a_given_embedding_needs_no_model(store) -> None:
    retriever = hybrid(store, embed_model=None)
    bundle = QueryBundle("apple", embedding=embed("orchard tips"))
    record = {found.node_id: stage_scores(found.node) for found in retriever.retrieve(bundle)}
    assert record["f5"]["dense"]["rank"] == 1


@pytest.mark.parametrize("query", ["", "  "])
def test_a_blank_query_finds_nothing(store, query, searches) -> None:
    assert hybrid(store).retrieve(query) == []
    assert searches["search"] == []


def test_a_word_that_is_nowhere_is_found_by_meaning_alone(store) -> None:
    hits = hybrid(store).retrieve("zeppelin")
    assert all("bm25" not in stage_scores(found.node) for found in hits)


def test_an_empty_store_gives_nothing(empty_store) -> None:
    assert hybrid(empty_store).retrieve("apple") == []


# -- failures


class Down(HashEmbedding):
    """An embedding service that does not answer."""

    def _get_query_embedding(self, query: str) -> list[float]:
        raise ConnectionError("service down")


async def test_without_the_embedding_service_bm25_still_answers(store) -> None:
    retriever = hybrid(store, embed_model=Down())
    for hits in (retriever.retrieve("apple"), await retriever.aretrieve("apple")):
        assert sorted(ids(hits)) == ["f1", "f2"]
    trace = retriever.explain("apple")
    assert [(leg.name, leg.hits, leg.error) for leg in trace.legs] == [
        ("dense", 0, "ConnectionError: service down"),
        ("bm25", 2, None),
    ]
    assert "ConnectionError" in str(trace)
    with pytest.raises(ConnectionError):
        hybrid(store, embed_model=Down(), on_error="raise").retrieve("apple")
    with pytest.raises(RetrievalError, match="service down"):
        hybrid(store, embed_model=Down(), dense_weight=1.0).retrieve("apple")


async def test_one_index_out_of_order_does_not_take_the_other_with_it(store, monkeypatch) -> None:
    search = LocalHybridStore.search

    def broken(self, request):
        if request.query_embedding is not None:
            raise OSError("dense index cannot be read")
        return search(self, request)

    monkeypatch.setattr(LocalHybridStore, "search", broken)
    for hits in (hybrid(store).retrieve("apple"), await hybrid(store).aretrieve("apple")):
        assert sorted(ids(hits)) == ["f1", "f2"]


def test_a_model_of_another_dimension_is_not_covered_up_by_bm25(store) -> None:
    with pytest.raises(EmbeddingError, match="dimension"):
        hybrid(store, embed_model=HashEmbedding(dimensions=8)).retrieve("apple")


def test_no_model_at_all_is_not_covered_up_by_bm25(store, monkeypatch) -> None:
    from llama_index.core.settings import Settings

    monkeypatch.setattr(Settings, "_embed_model", None)
    with pytest.raises(ConfigError, match="embed_model"):
        hybrid(store, embed_model=None).retrieve("apple")


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan"), "0.5", None, True])
def test_an_impossible_share_is_refused(store, weight) -> None:
    with pytest.raises(ConfigError, match="dense_weight"):
        hybrid(store, dense_weight=weight)


# -- filters and scope


async def test_only_the_filtered_tenant_comes_back_on_every_path(store, cases_dir) -> None:
    case = json.loads((cases_dir / "B36.json").read_text())
    query, allowed = case["input"]["query"], set(case["expected"]["only_tenants"])
    for top_k in case["input"]["top_k"]:
        fixed = hybrid(store, similarity_top_k=top_k, filters=where("tenant", "red"))
        scoped = hybrid(store).scoped(filters=where("tenant", "red"), top_k=top_k)
        for retriever in (fixed, scoped):
            for hits in (retriever.retrieve(query), await retriever.aretrieve(query)):
                assert {found.metadata["tenant"] for found in hits} == allowed
    nobody = hybrid(store).scoped(filters=where("tenant", "nobody"))
    assert nobody.retrieve(query) == case["expected"]["no_match_tenant"]


def test_nested_filters_are_honoured_on_both_legs(empty_store, cases_dir) -> None:
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
    hits = hybrid(empty_store, filters=nested).retrieve("same words")
    assert sorted(ids(hits)) == case["expected"]["matches"]
    assert all({"dense", "bm25"} <= set(stage_scores(found.node)) for found in hits)


def test_a_scope_narrows_one_view_only_and_still_searches_once(store, searches) -> None:
    retriever = hybrid(store, filters=where("tenant", ["red", "blue"], "in"))
    view = retriever.scoped(filters=where("tenant", ["blue", "green"], "in"))
    assert {found.metadata["tenant"] for found in view.retrieve("apple")} == {"blue"}
    assert {found.metadata["tenant"] for found in retriever.retrieve("apple")} == {"red", "blue"}
    assert len(searches["search"]) == 2


def test_a_scope_with_more_hits_deepens_the_legs(store, searches) -> None:
    retriever = hybrid(store, leg_top_k=1, similarity_top_k=1)
    assert len(retriever.scoped(top_k=4).retrieve("apple")) == 4
    assert searches["search"][0].dense_top_k == 4
    assert len(retriever.retrieve("apple")) == 1
    assert searches["search"][1].dense_top_k == 1


@pytest.mark.parametrize("top_k", [0, -2, True])
def test_a_scope_with_an_impossible_number_of_hits_is_refused(store, top_k) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        hybrid(store).scoped(top_k=top_k)


async def test_an_unknown_field_is_refused_even_with_on_error_fallback(store) -> None:
    retriever = hybrid(store, filters=where("colour", "red"))
    with pytest.raises(FilterError, match="colour"):
        retriever.retrieve("apple")
    with pytest.raises(FilterError, match="colour"):
        await retriever.aretrieve("apple")


# -- trace


async def test_a_trace_says_where_each_hit_came_from(store) -> None:
    retriever = hybrid(store, similarity_top_k=3)
    hits, trace = retriever.retrieve_with_trace("apple")
    assert [row.node_id for row in trace.rows] == ids(hits) == ids(retriever.retrieve("apple"))
    assert [(leg.name, leg.weight, leg.hits) for leg in trace.legs] == [
        ("dense", 0.5, 5),
        ("bm25", 0.5, 2),
    ]
    assert trace.rows[0].stages == stage_scores(hits[0].node)
    again = await retriever.aexplain("apple")
    assert again.rows == trace.rows
    assert trace.stage_names == ["dense", "bm25", "fusion"]


def test_a_trace_prints_as_a_table_without_the_passages(store) -> None:
    text = str(hybrid(store, similarity_top_k=2).explain("apple"))
    assert "Query: apple" in text
    assert "weighted, z_score" in text
    assert "f1.md" in text
    assert "crumble" not in text
    json.dumps(hybrid(store).explain("apple").to_dict())


async def test_retrieving_with_a_trace_emits_what_retrieving_does(store, events) -> None:
    def emitted(call):
        events.clear()
        call()
        return [event.class_name() for event in events]

    retriever = hybrid(store)
    plain = emitted(lambda: retriever.retrieve("apple"))
    assert emitted(lambda: retriever.retrieve_with_trace("apple")) == plain
    assert "RetrievalEndEvent" in plain


def test_explaining_leaves_nothing_behind_in_the_retriever(store) -> None:
    retriever = hybrid(store)
    before = set(vars(retriever))
    retriever.explain("apple")
    assert set(vars(retriever)) == before
    assert retriever._outcomes is None


# -- copies


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))])
def test_copies_find_the_same(tmp_path, copied) -> None:
    with LocalHybridStore(tmp_path / "store") as store:
        store.add([make_node("a", "apple pie"), make_node("k", "kiwi")])
        retriever = hybrid(store)
        found = [(h.node_id, h.score) for h in copied(retriever).retrieve("apple")]
        assert found == [(h.node_id, h.score) for h in retriever.retrieve("apple")]
