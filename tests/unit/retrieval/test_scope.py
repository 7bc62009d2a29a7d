"""What holds for one call is pushed into every retriever, or refused."""

from __future__ import annotations

import copy

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.indices.query.query_transform.base import IdentityQueryTransform
from llama_index.core.retrievers import TransformRetriever
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQuery
from llama_index.retrievers.bm25 import BM25Retriever

from llama_index_hybrid_pack.errors import FilterError
from llama_index_hybrid_pack.indexing.stores.local import LocalHybridStore
from llama_index_hybrid_pack.retrieval.bm25 import IdentifierBM25Retriever
from llama_index_hybrid_pack.retrieval.fusion import HybridFusionRetriever
from llama_index_hybrid_pack.retrieval.scope import with_depth, with_filters
from llama_index_hybrid_pack.testing.builders import (
    all_of,
    any_of,
    condition,
    embed_model,
    make_node,
    where,
)
from tests.unit.retrieval.static import Static, ids, ranked

NODES = [
    make_node("1", "apple one", metadata={"tenant": "red", "year": 2020}),
    make_node("2", "apple two", metadata={"tenant": "blue", "year": 2021}),
    make_node("3", "apple three", metadata={"tenant": "red", "year": 2022}),
]


class Ignoring(SimpleVectorStore):
    """Does not know filters and says nothing, as some stores do."""

    def query(self, query: VectorStoreQuery, **kwargs):
        query.filters = None
        return super().query(query, **kwargs)


def index(store=None):
    nodes = [copy.deepcopy(node) for node in NODES]
    built = VectorStoreIndex(nodes, embed_model=embed_model())
    if store is not None:
        built._vector_store = built._storage_context.vector_stores["default"] = store(
            data=built.vector_store.data
        )
    return built


def vectors(store=None, **options):
    return index(store).as_retriever(**{"similarity_top_k": 3, **options})


async def both(retriever, query="apple"):
    sync, asynchronous = retriever.retrieve(query), await retriever.aretrieve(query)
    assert ids(sync) == ids(asynchronous)
    return sorted(ids(sync))


async def test_a_filter_is_pushed_into_a_vector_index() -> None:
    retriever = vectors()
    view = with_filters(retriever, where("tenant", "red"))
    assert await both(view) == ["1", "3"]
    assert await both(retriever) == ["1", "2", "3"]
    assert retriever._filters is None


async def test_the_retrievers_own_filter_still_holds() -> None:
    own = where("year", 2020, ">")
    view = with_filters(vectors(filters=own), where("tenant", "red"))
    assert await both(view) == ["3"]
    assert await both(with_filters(view, where("year", 2021, "<="))) == []
    assert own == where("year", 2020, ">")


async def test_a_vector_index_over_a_store_of_ours_takes_nested_filters() -> None:
    with LocalHybridStore() as store:
        store.add(NODES)
        retriever = VectorStoreIndex.from_vector_store(
            store, embed_model=embed_model()
        ).as_retriever(similarity_top_k=3)
        nested = any_of(
            all_of(condition("tenant", "red"), condition("year", 2020)), condition("year", 2021)
        )
        assert await both(with_filters(retriever, nested)) == ["1", "2"]


async def test_a_filter_that_a_store_refuses_is_a_filter_error() -> None:
    nested = any_of(
        all_of(condition("tenant", "red"), condition("year", 2020)), condition("year", 2021)
    )
    view = with_filters(vectors(filters=where("tenant", "red")), nested)
    with pytest.raises(FilterError, match="SimpleVectorStore"):
        view.retrieve("apple")
    with pytest.raises(FilterError, match="SimpleVectorStore"):
        await view.aretrieve("apple")


async def test_a_store_that_ignores_the_filter_is_found_out() -> None:
    retriever = vectors(Ignoring)
    assert len(retriever.retrieve("apple")) == 3
    view = with_filters(retriever, where("tenant", "red"))
    with pytest.raises(FilterError, match="Ignoring returned 1 of 3"):
        view.retrieve("apple")
    with pytest.raises(FilterError, match="Ignoring returned 1 of 3"):
        await view.aretrieve("apple")
    fused = HybridFusionRetriever([retriever, IdentifierBM25Retriever(NODES)], on_error="fallback")
    with pytest.raises(FilterError, match="Ignoring"):
        fused.scoped(filters=where("tenant", "red")).retrieve("apple")


async def test_a_scope_reaches_every_leg_of_a_fusion() -> None:
    retriever = HybridFusionRetriever(
        [vectors(), IdentifierBM25Retriever(NODES, similarity_top_k=3)]
    )
    view = retriever.scoped(filters=where("tenant", "red"))
    assert await both(view) == ["1", "3"]
    assert await both(view.scoped(filters=where("year", 2022))) == ["3"]
    assert await both(retriever) == ["1", "2", "3"]
    nested = HybridFusionRetriever([retriever, ranked()], weights=[1, 0])
    assert await both(nested.scoped(filters=where("tenant", "blue"))) == ["2"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: BM25Retriever.from_defaults(nodes=NODES, similarity_top_k=2),
        lambda: TransformRetriever(vectors(), IdentityQueryTransform()),
        lambda: ranked("1"),
    ],
    ids=["BM25Retriever", "TransformRetriever", "Static"],
)
def test_a_retriever_that_cannot_filter_is_refused_by_name(make) -> None:
    retriever = make()
    with pytest.raises(FilterError, match=type(retriever).__name__):
        with_filters(retriever, where("tenant", "red"))
    fused = HybridFusionRetriever([vectors(), retriever])
    with pytest.raises(FilterError, match=type(retriever).__name__):
        fused.scoped(filters=where("tenant", "red"))


def test_a_leg_that_is_never_asked_needs_no_filter() -> None:
    fused = HybridFusionRetriever([vectors(), ranked("2")], weights=[1, 0])
    assert sorted(ids(fused.scoped(filters=where("tenant", "red")).retrieve("apple"))) == ["1", "3"]


def test_no_filter_leaves_the_retriever_as_it_is() -> None:
    retriever = ranked("1")
    assert with_filters(retriever, None) is retriever


def test_any_retriever_with_a_method_scoped_can_take_part() -> None:
    class Own(Static):
        seen: MetadataFilters | None = None

        def scoped(self, *, filters=None, top_k=None):
            view = copy.copy(self)
            view.seen = filters
            return view

    own = Own([])
    assert with_filters(own, where("tenant", "red")).seen == where("tenant", "red")
    assert own.seen is None


@pytest.mark.parametrize(
    "retriever",
    [
        vectors(similarity_top_k=1),
        with_filters(vectors(similarity_top_k=1), where("year", 0, ">")),
        IdentifierBM25Retriever(NODES, similarity_top_k=1),
        BM25Retriever.from_defaults(nodes=NODES, similarity_top_k=1),
    ],
    ids=lambda retriever: type(retriever).__name__,
)
def test_a_view_can_be_deeper(retriever) -> None:
    assert len(with_depth(retriever, 3).retrieve("apple")) == 3
    assert len(retriever.retrieve("apple")) == 1
    assert with_depth(retriever, 1) is retriever


def test_a_retriever_without_a_number_of_hits_stays_as_it_is() -> None:
    retriever = ranked("1")
    assert with_depth(retriever, 9) is retriever


def test_the_prompts_behind_a_check_can_be_reached() -> None:
    view = with_filters(vectors(), where("tenant", "red"))
    assert list(view._get_prompt_modules()) == ["retriever"]
    assert view.class_name() == "CheckedRetriever"
