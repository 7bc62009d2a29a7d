"""Store contract: node ids, document ids and tenants restrict every mode."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import pytest
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_index_hybrid_pack.testing.builders import make_node, where
from llama_index_hybrid_pack.testing.store_contract.base import (
    Calls,
    ContractBase,
    Mode,
    each_mode,
    outcome,
)

#: Node id → text and tenant: a tenant's only match, and words that other tenants share.
_TENANTS = {
    "f1": ("apple crumble", "red"),
    "f2": ("apple share price", "blue"),
    "f3": ("banana loaf", "red"),
    "f4": ("shirt sale", "blue"),
    "f5": ("orchard tips", "green"),
}

#: Fields of a query and the ids that they leave.
_RESTRICTIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({"node_ids": ["a2", "b1"]}, ["a2", "b1"]),
    ({"node_ids": ["b1", "unknown"]}, ["b1"]),
    ({"node_ids": ["unknown"]}, []),
    ({"doc_ids": ["a"]}, ["a1", "a2"]),
    ({"doc_ids": ["b", "unknown"]}, ["b1"]),
    ({"doc_ids": ["other"]}, []),
    ({"doc_ids": []}, []),
    ({"doc_ids": ["a"], "node_ids": ["a1", "b1"]}, ["a1"]),
    ({"node_ids": ["a1", "a2"], "filters": where("kind", "y")}, ["a2"]),
    ({"doc_ids": ["a"], "filters": where("kind", "x")}, ["a1"]),
    ({"doc_ids": ["b"], "filters": where("kind", "y")}, []),
]


class ScopingContract(ContractBase):
    """What must hold for restricted queries."""

    @pytest.fixture
    def shelves(self, store: BasePydanticVectorStore) -> BasePydanticVectorStore:
        """Give a store with nodes of three documents, one of them without any."""
        store.add(
            [
                make_node("a1", "apple one", doc_id="a", metadata={"kind": "x"}),
                make_node("a2", "apple two", doc_id="a", metadata={"kind": "y"}),
                make_node("b1", "apple three", doc_id="b", metadata={"kind": "x"}),
                make_node("none", "apple four", metadata={"kind": "x"}),
            ]
        )
        return store

    @each_mode
    def test_ids_and_filters_are_joined_by_and(
        self, shelves: BasePydanticVectorStore, calls: Calls, mode: Mode
    ) -> None:
        """None is no restriction; an empty list of documents lets nothing through."""
        self.require_mode(mode)

        def found(restriction: dict[str, Any]) -> list[str]:
            return sorted(calls.ask(shelves, "apple", mode=mode, **restriction).ids)

        expected = {str(restriction): ids for restriction, ids in _RESTRICTIONS}
        outcomes = {str(each): outcome(partial(found, each)) for each, _ in _RESTRICTIONS}
        assert outcomes == expected

    @each_mode
    def test_an_empty_list_of_node_ids_is_no_restriction(
        self, shelves: BasePydanticVectorStore, calls: Calls, mode: Mode
    ) -> None:
        """``VectorStoreIndex.as_retriever`` always hands over one, for stores that keep text."""
        self.require("supports_get_nodes")
        self.require_mode(mode)
        assert len(calls.ask(shelves, "apple", mode=mode, node_ids=[]).ids) == 4

    @each_mode
    def test_restricted_search_still_finds_k(
        self, store: BasePydanticVectorStore, calls: Calls, mode: Mode
    ) -> None:
        """The restriction comes before the ranking."""
        self.require_mode(mode)
        calls.add(store, [make_node(f"b{i:02}", "apple", doc_id="big") for i in range(60)])
        calls.add(
            store, [make_node(f"s{i}", f"apple and words {i}", doc_id="small") for i in range(4)]
        )
        found = calls.ask(store, "apple", mode=mode, k=4, doc_ids=["small"]).ids
        assert sorted(found) == ["s0", "s1", "s2", "s3"]

    @each_mode
    def test_no_mode_shows_another_tenants_nodes(
        self, store: BasePydanticVectorStore, calls: Calls, mode: Mode
    ) -> None:
        """Also where fewer than k of the tenant's nodes match, and where none does."""
        self.require_mode(mode)
        calls.add(
            store,
            [
                make_node(node_id, text, metadata={"tenant": tenant})
                for node_id, (text, tenant) in _TENANTS.items()
            ],
        )
        tenants = [tenant for _, tenant in _TENANTS.values()]
        for k, text in product((1, 2, 4, 100), ("apple", "shirt", "orchard tips", "unknown")):
            for tenant in ("red", "blue", "green", "grey"):
                found = calls.ask(store, text, mode=mode, k=k, filters=where("tenant", tenant)).ids
                assert {_TENANTS[node_id][1] for node_id in found} <= {tenant}
                if mode is Mode.DEFAULT:
                    assert len(found) == min(k, tenants.count(tenant))

    @each_mode
    def test_lookalike_tenants_stay_apart(
        self, store: BasePydanticVectorStore, calls: Calls, mode: Mode
    ) -> None:
        """Case, dashes, spaces and wildcards are part of a name."""
        self.require_mode(mode)
        tenants = ["erp", "ERP", "ERP_System", "erp-archive", "erp archive", "erp%", "erp "]
        calls.add(
            store,
            [make_node(f"n{i}", "apple", metadata={"tenant": t}) for i, t in enumerate(tenants)],
        )
        for i, tenant in enumerate(tenants):
            found = calls.ask(store, "apple", mode=mode, filters=where("tenant", tenant)).ids
            assert found == [f"n{i}"], tenant
            others = calls.ask(store, "apple", mode=mode, filters=where("tenant", tenant, "!=")).ids
            assert len(others) == len(tenants) - 1, tenant

    @each_mode
    def test_access_lists_are_exact(
        self, store: BasePydanticVectorStore, calls: Calls, mode: Mode
    ) -> None:
        """A group whose name is a part of another's sees nothing of it."""
        self.require_mode(mode)
        lists = {"a": ["hr"], "b": ["hr-admins"], "c": ["HR", "board"], "d": [], "e": "hr-admins"}
        calls.add(
            store,
            [make_node(n, "apple", metadata={"acl": acl}) for n, acl in lists.items() if n != "e"],
        )
        if self.supports_mixed_types:
            calls.add(store, [make_node("e", "apple", metadata={"acl": lists["e"]})])
        for operator in ("any", "in"):
            found = calls.ask(store, "apple", mode=mode, filters=where("acl", ["hr"], operator)).ids
            assert found == ["a"], operator
        assert calls.ask(store, "apple", mode=mode, filters=where("acl", [], "any")).ids == []
