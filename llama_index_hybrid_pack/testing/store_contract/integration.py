"""Store contract: the store inside LlamaIndex's own index and retriever."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.retrievers import VectorIndexRetriever
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_index_hybrid_pack.testing.builders import embed_model, make_node, where
from llama_index_hybrid_pack.testing.store_contract.base import (
    Calls,
    ContractBase,
    Mode,
    each_mode,
)


class IntegrationContract(ContractBase):
    """What must hold through ``VectorStoreIndex``."""

    @pytest.fixture
    def index(self, store: BasePydanticVectorStore) -> VectorStoreIndex:
        """Give an index over the store with four nodes that LlamaIndex embedded."""
        self.require("supports_get_nodes")
        index = VectorStoreIndex.from_vector_store(store, embed_model=embed_model())
        nodes = [
            make_node("a1", "apple pie", doc_id="a", metadata={"tenant": "red"}),
            make_node("a2", "apple juice", doc_id="a", metadata={"tenant": "blue"}),
            make_node("b1", "banana bread", doc_id="b", metadata={"tenant": "red"}),
            make_node("b2", "cherry tart", doc_id="b", metadata={"tenant": "blue"}),
        ]
        for node in nodes:
            node.embedding = None
        index.insert_nodes(nodes)
        return index

    @staticmethod
    def retrieve(index: VectorStoreIndex, calls: Calls, **options: object) -> list[NodeWithScore]:
        """Retrieve "apple" with a retriever of these options, in the test's colour."""
        # as_retriever() hands over node_ids of its own, so there they cannot be chosen.
        make = partial(VectorIndexRetriever, index) if "node_ids" in options else index.as_retriever
        retriever = make(**options)
        if calls.colour == "async":
            return asyncio.run(retriever.aretrieve("apple"))
        return retriever.retrieve("apple")

    @each_mode
    def test_a_retriever_finds_and_scores(
        self, index: VectorStoreIndex, calls: Calls, mode: Mode
    ) -> None:
        """Whole nodes with plain scores."""
        self.require_mode(mode)
        hits = self.retrieve(index, calls, similarity_top_k=2, vector_store_query_mode=mode)
        assert {hit.node_id for hit in hits} == {"a1", "a2"}
        for hit in hits:
            assert isinstance(hit.node, TextNode)
            assert hit.node.text.startswith("apple")
            assert hit.node.ref_doc_id == "a"
            assert type(hit.score) is float

    @each_mode
    def test_a_retrievers_restrictions_reach_the_store(
        self, index: VectorStoreIndex, calls: Calls, mode: Mode
    ) -> None:
        """Filters, node ids and document ids."""
        self.require_mode(mode)

        def found(**options: object) -> list[str]:
            hits = self.retrieve(
                index, calls, similarity_top_k=4, vector_store_query_mode=mode, **options
            )
            return sorted(hit.node_id for hit in hits)

        assert {"a1", "a2"} <= set(found())
        assert "a1" in found(filters=where("tenant", "red"))
        assert not {"a2", "b2"} & set(found(filters=where("tenant", "red")))
        assert found(filters=where("tenant", "grey")) == []
        assert found(node_ids=["a2"]) == ["a2"]
        assert found(doc_ids=["other"]) == []
        assert "a1" in found(doc_ids=["a"])
        assert not {"b1", "b2"} & set(found(doc_ids=["a"]))

    def test_alpha_reaches_the_store(self, index: VectorStoreIndex, calls: Calls) -> None:
        """0 is words only: what has none of them is no hit."""
        self.require("supports_hybrid")
        hits = self.retrieve(
            index, calls, similarity_top_k=4, vector_store_query_mode=Mode.HYBRID, alpha=0.0
        )
        assert {hit.node_id for hit in hits} == {"a1", "a2"}

    def test_deleting_through_the_index(self, index: VectorStoreIndex, calls: Calls) -> None:
        """By document and by node."""
        index.delete_ref_doc("b")
        hits = self.retrieve(index, calls, similarity_top_k=4)
        assert {hit.node_id for hit in hits} == {"a1", "a2"}
        index.delete_nodes(["a1"])
        hits = self.retrieve(index, calls, similarity_top_k=4)
        assert {hit.node_id for hit in hits} == {"a2"}
