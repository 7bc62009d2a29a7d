"""Store contract: deleting and fetching, exactly what was asked for."""

from __future__ import annotations

from llama_index.core.vector_stores.types import BasePydanticVectorStore, MetadataFilters

from llama_index_hybrid_pack.testing.builders import make_node, where
from llama_index_hybrid_pack.testing.store_contract.base import (
    LOOKALIKES,
    ODD_IDS,
    Calls,
    ContractBase,
)


class DeletingContract(ContractBase):
    """What must hold for deletes and ``get_nodes``."""

    def test_delete_removes_exactly_one_document(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """No document whose id only looks like it."""
        nodes = [make_node(f"n{i}", doc_id=doc_id) for i, doc_id in enumerate(LOOKALIKES)]
        calls.add(store, [*nodes, make_node("none")])
        left = {node.node_id for node in nodes} | {"none"}
        for node in reversed(nodes):  # those that read as wildcards first
            calls.delete(store, str(node.ref_doc_id))
            left.discard(node.node_id)
            assert set(calls.ask(store, "n", k=20).ids) == left, node.ref_doc_id

    def test_delete_removes_every_node_of_the_document_in_every_mode(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """Also when it has many."""
        many = [make_node(f"n{i:03}", f"apple {i}", doc_id="big") for i in range(250)]
        calls.add(store, [*many, make_node("other", "apple", doc_id="small")])
        calls.delete(store, "big")
        for mode in self.modes():
            assert calls.ask(store, "apple", mode=mode, k=300).ids == ["other"], mode

    def test_deleting_what_is_not_there_is_no_error(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """An unknown document or node id changes nothing."""
        calls.add(store, [make_node("a", doc_id="d")])
        calls.delete(store, "unknown")
        calls.delete_nodes(store, node_ids=["unknown"])
        assert calls.ask(store, "a").ids == ["a"]

    def test_delete_nodes_removes_exactly_the_given_ids(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """Whatever characters they hold."""
        calls.add(store, [make_node(node_id, "text") for node_id in [*LOOKALIKES, *ODD_IDS]])
        calls.delete_nodes(store, node_ids=["hand%", "hand_ook", *ODD_IDS])
        assert set(calls.ask(store, "text", k=50).ids) == set(LOOKALIKES) - {"hand%", "hand_ook"}

    def test_delete_nodes_by_filter(self, store: BasePydanticVectorStore, calls: Calls) -> None:
        """Only nodes that pass the filter go."""
        calls.add(store, [make_node(f"n{i}", metadata={"year": 2020 + i}) for i in range(4)])
        calls.delete_nodes(store, filters=where("year", 2022, ">="))
        assert set(calls.ask(store, "n").ids) == {"n0", "n1"}

    def test_delete_nodes_by_ids_and_filter_needs_both(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """The two restrictions are joined by AND."""
        calls.add(store, [make_node(f"n{i}", metadata={"part": i % 2}) for i in range(4)])
        calls.delete_nodes(store, node_ids=["n0", "n1"], filters=where("part", 0))
        assert set(calls.ask(store, "n").ids) == {"n1", "n2", "n3"}

    def test_delete_nodes_with_no_ids_deletes_nothing(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """An empty list is not "no restriction"."""
        calls.add(store, [make_node("a")])
        calls.delete_nodes(store, node_ids=[])
        assert calls.ask(store, "a").ids == ["a"]

    def test_delete_nodes_without_any_restriction_deletes_nothing(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """It may be refused; to empty a store there is ``clear``."""
        calls.add(store, [make_node("a")])
        for filters in (None, MetadataFilters(filters=[])):
            try:
                calls.delete_nodes(store, filters=filters)
            except ValueError:
                continue
        assert calls.ask(store, "a").ids == ["a"]

    def test_clear_empties_the_store_and_it_can_be_filled_again(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """In every mode."""
        calls.add(store, [make_node("a", "apple"), make_node("b", "banana")])
        calls.clear(store)
        for mode in self.modes():
            assert calls.ask(store, "apple", mode=mode).ids == [], mode
        calls.add(store, [make_node("c", "apple")])
        for mode in self.modes():
            assert calls.ask(store, "apple", mode=mode).ids == ["c"], mode

    def test_get_nodes_by_id(self, store: BasePydanticVectorStore, calls: Calls) -> None:
        """Known ids come back, unknown ones are left out, no ids give nothing."""
        self.require("supports_get_nodes")
        calls.add(store, [make_node("a"), make_node("b"), make_node("c")])
        found = calls.get_nodes(store, node_ids=["c", "unknown", "a"])
        assert sorted(node.node_id for node in found) == ["a", "c"]
        assert calls.get_nodes(store, node_ids=[]) == []

    def test_get_nodes_by_filter(self, store: BasePydanticVectorStore, calls: Calls) -> None:
        """Every node that passes, also many."""
        self.require("supports_get_nodes")
        calls.add(
            store, [make_node(f"n{i:03}", "text", metadata={"part": i % 2}) for i in range(240)]
        )
        found = calls.get_nodes(store, filters=where("part", 1))
        assert sorted(node.node_id for node in found) == [f"n{i:03}" for i in range(1, 240, 2)]

    def test_get_nodes_by_id_and_filter_needs_both(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """The two restrictions are joined by AND."""
        self.require("supports_get_nodes")
        calls.add(store, [make_node(f"n{i}", metadata={"part": i}) for i in range(3)])
        found = calls.get_nodes(store, node_ids=["n0", "n1"], filters=where("part", 1, ">="))
        assert [node.node_id for node in found] == ["n1"]
