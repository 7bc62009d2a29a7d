"""Store contract: adding and replacing, all or nothing."""

from __future__ import annotations

import copy
import math

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_index_hybrid_pack.testing.builders import make_node, vector, where
from llama_index_hybrid_pack.testing.store_contract.base import (
    ODD_IDS,
    Calls,
    ContractBase,
    Mode,
)

_BAD_VECTORS = {
    "too short": [1.0, 0.0],
    "too long": [1.0] * 33,
    "empty": [],
    "NaN": vector(math.nan, 1.0),
    "infinite": vector(math.inf, 1.0),
}


class WritingContract(ContractBase):
    """What must hold for ``add``."""

    def test_add_returns_the_ids_in_order(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """LlamaIndex keeps these ids to find the nodes again."""
        assert calls.add(store, [make_node("b"), make_node("a")]) == ["b", "a"]

    def test_adding_nothing_is_no_error(self, store: BasePydanticVectorStore, calls: Calls) -> None:
        """An empty batch leaves the store empty."""
        assert calls.add(store, []) == []
        assert calls.ask(store, "a").ids == []

    def test_an_added_node_is_found_at_once(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """In every mode, as soon as the call returns."""
        for number in range(3):
            calls.add(store, [make_node(f"n{number}", f"word{number}")])
            for mode in self.modes():
                assert calls.ask(store, f"word{number}", mode=mode, k=1).ids == [f"n{number}"], mode

    def test_adding_an_existing_id_replaces_the_node(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """Neither a second copy stays nor the old text, vector or metadata."""
        calls.add(store, [make_node("a", "apple", metadata={"state": "old", "only_old": 1})])
        calls.add(store, [make_node("b", "banana", metadata={"state": "old"})])
        calls.add(store, [make_node("a", "cherry", metadata={"state": "new"})])
        assert sorted(calls.ask(store, "cherry").ids) == ["a", "b"]
        assert calls.ask(store, "cherry", k=1).ids == ["a"]
        assert calls.ask(store, "apple", filters=where("state", "old")).ids == ["b"]
        assert calls.ask(store, "apple", filters=where("state", "new")).ids == ["a"]

    def test_a_replaced_text_is_no_longer_found_by_its_words(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """The index of words follows a replacement."""
        self.require("supports_text_search")
        calls.add(store, [make_node("a", "apple"), make_node("b", "banana")])
        calls.add(store, [make_node("a", "cherry")])
        assert calls.ask(store, "apple", mode=Mode.TEXT_SEARCH).ids == []
        assert calls.ask(store, "cherry", mode=Mode.TEXT_SEARCH).ids == ["a"]

    def test_the_document_of_a_replaced_node_changes_with_it(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """Deleting the document it came from at first must not take it away."""
        calls.add(store, [make_node("a", doc_id="first")])
        calls.add(store, [make_node("a", doc_id="second")])
        calls.delete(store, "first")
        assert calls.ask(store, "a").ids == ["a"]
        calls.delete(store, "second")
        assert calls.ask(store, "a").ids == []

    @pytest.mark.parametrize("bad", _BAD_VECTORS.values(), ids=_BAD_VECTORS)
    def test_a_bad_vector_in_a_batch_adds_nothing(
        self, store: BasePydanticVectorStore, calls: Calls, bad: list[float]
    ) -> None:
        """All or nothing: the good nodes before it are not left behind, old ones stay."""
        calls.add(store, [make_node("old", "apple")])
        batch = [make_node("new", "banana"), make_node("old", "cherry")]
        with pytest.raises(self.embedding_error):
            calls.add(store, [*batch, make_node("bad", embedding=bad)])
        assert calls.ask(store, "banana").ids == ["old"]
        assert calls.ask(store, "apple", k=1).scores == [pytest.approx(1.0, abs=1e-3)]

    def test_a_missing_vector_in_a_batch_adds_nothing(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """The same for a node that was never embedded."""
        bare = make_node("bare")
        bare.embedding = None
        with pytest.raises(self.embedding_error):
            calls.add(store, [make_node("good"), bare])
        assert calls.ask(store, "good").ids == []

    def test_a_store_that_refused_its_first_batch_still_works(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """A refused batch does not decide the dimension."""
        with pytest.raises(self.embedding_error):
            calls.add(store, [make_node("a"), make_node("b", embedding=[1.0, 2.0])])
        calls.add(store, [make_node("a"), make_node("b")])
        assert sorted(calls.ask(store, "a").ids) == ["a", "b"]

    def test_a_zero_vector_gives_no_broken_score(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """It is refused, or it is near to nothing; never first, never NaN."""
        try:
            calls.add(store, [make_node("zero", embedding=vector(0.0)), make_node("a", "apple")])
        except self.embedding_error:
            return
        answer = calls.ask(store, "apple")
        assert answer.ids[0] == "a"
        assert all(math.isfinite(score) for score in answer.scores)

    def test_two_different_nodes_of_one_id_in_one_call_are_refused(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """Which one should win nobody said, so nothing is added."""
        with pytest.raises(ValueError, match="twin"):
            calls.add(
                store, [make_node("twin", "apple"), make_node("b"), make_node("twin", "pear")]
            )
        assert calls.ask(store, "b").ids == []

    def test_add_leaves_the_nodes_as_they_were(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """Text, metadata and embedding of the caller's nodes are not touched."""
        node = make_node("a", "apple", doc_id="d", metadata={"tags": ["x"], "deep": {"n": 1}})
        before = copy.deepcopy(node.to_dict())
        calls.add(store, [node])
        assert node.to_dict() == before

    def test_a_node_changed_after_add_does_not_change_the_store(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """The store keeps what it was given, not a reference to it."""
        node = make_node("a", "apple", metadata={"state": "given", "tags": ["x"]})
        calls.add(store, [node])
        node.metadata["state"] = "changed"
        node.metadata["tags"].append("y")
        assert node.embedding is not None
        node.embedding[:] = vector(0.0, 0.0, 1.0)
        assert calls.ask(store, "apple", filters=where("state", "given")).scores == [
            pytest.approx(1.0, abs=1e-3)
        ]
        assert calls.ask(store, "apple", filters=where("tags", "y", "contains")).ids == []

    def test_odd_characters_in_ids_and_values_are_kept(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """Node id, document id, text and metadata value; and they can be asked for."""
        nodes = [
            make_node(f"n{odd}", f"text {odd}", doc_id=odd, metadata={"value": odd})
            for odd in ODD_IDS
        ]
        calls.add(store, [*nodes, make_node("other", "text", metadata={"value": "other"})])
        for node in nodes:
            found = calls.ask(store, "text", filters=where("value", node.metadata["value"]))
            assert found.ids == [node.node_id]
            assert calls.ask(store, "text", node_ids=[node.node_id]).ids == [node.node_id]
            assert calls.ask(store, "text", doc_ids=[str(node.ref_doc_id)]).ids == [node.node_id]
        for node in nodes:
            if self.supports_get_nodes:
                (fetched,) = calls.get_nodes(store, node_ids=[node.node_id])
                assert isinstance(fetched, TextNode)
                assert (fetched.text, fetched.ref_doc_id) == (node.text, node.ref_doc_id)
            calls.delete(store, str(node.ref_doc_id))
        assert calls.ask(store, "text").ids == ["other"]

    def test_odd_field_names_can_be_stored_and_asked_for(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """Also names that a store may use for itself, and names that differ in case only."""
        names = [
            *("id", "text", "vector", "doc_id", "ref_doc_id", "row", "_id"),
            *("header path", "page-no", "naïve", "a.b", "Tenant", "tenant", "2nd"),
            *("x'; DROP TABLE nodes; --", '"quoted"', "日本", "100%"),
        ]
        calls.add(
            store, [make_node(f"n{i}", metadata={name: f"v{i}"}) for i, name in enumerate(names)]
        )
        calls.add(store, [make_node("all", metadata=dict.fromkeys(names, "x"))])
        for i, name in enumerate(names):
            assert calls.ask(store, "n", filters=where(name, f"v{i}")).ids == [f"n{i}"], name
            found = calls.ask(store, "n", filters=where(name, "x")).ids
            assert found == ["all"], name

    def test_a_batch_may_be_large(self, store: BasePydanticVectorStore, calls: Calls) -> None:
        """Larger than the number of parameters that one SQL statement takes."""
        self.require("supports_get_nodes")
        count = 1200
        calls.add(store, [make_node(f"n{i:04}", f"w{i % 7}") for i in range(count)])
        ids = [f"n{i:04}" for i in range(count)]
        assert len(calls.get_nodes(store, node_ids=ids)) == count
        calls.delete_nodes(store, node_ids=ids[1:])
        assert calls.ask(store, "w0").ids == ["n0000"]
