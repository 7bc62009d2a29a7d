"""Store contract: metadata filters, the same meaning in every mode."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
)

from llama_index_hybrid_pack.testing.builders import (
    all_of,
    condition,
    make_node,
    where,
)
from llama_index_hybrid_pack.testing.store_contract.base import (
    Calls,
    ContractBase,
    Mode,
    each_mode,
)
from llama_index_hybrid_pack.testing.store_contract.filter_cases import (
    CONDITIONS,
    GROUPS,
    LIBRARY,
    NESTED,
    REFUSED,
    FilterCase,
)


def _names(cases: list[FilterCase]) -> list[str]:
    return [case.name for case in cases]


class FilteringContract(ContractBase):
    """What must hold for filters."""

    @pytest.fixture
    def library(self, store: BasePydanticVectorStore) -> BasePydanticVectorStore:
        """Give a store with the nodes of :data:`LIBRARY`."""
        store.add(
            [
                make_node(node_id, "book", metadata=copy.deepcopy(metadata))
                for node_id, metadata in LIBRARY.items()
            ]
        )
        return store

    def check(self, store: BasePydanticVectorStore, calls: Calls, case: FilterCase) -> None:
        """Compare query and ``get_nodes`` with the expected ids."""
        expected = case.expected.split()
        assert sorted(calls.ask(store, "book", filters=case.filters).ids) == expected
        if self.supports_get_nodes and case.filters.filters:
            nodes = calls.get_nodes(store, filters=case.filters)
            assert sorted(node.node_id for node in nodes) == expected

    @pytest.mark.parametrize("case", CONDITIONS, ids=_names(CONDITIONS))
    def test_condition(
        self, library: BasePydanticVectorStore, calls: Calls, case: FilterCase
    ) -> None:
        """Every operator means the same on every store."""
        self.check(library, calls, case)

    @pytest.mark.parametrize("case", GROUPS, ids=_names(GROUPS))
    def test_group(self, library: BasePydanticVectorStore, calls: Calls, case: FilterCase) -> None:
        """AND, OR, NOT."""
        self.check(library, calls, case)

    @pytest.mark.parametrize("case", NESTED, ids=_names(NESTED))
    def test_nested_group(
        self, library: BasePydanticVectorStore, calls: Calls, case: FilterCase
    ) -> None:
        """Groups in groups, or a refusal: never another result."""
        if self.supports_nested_filters:
            self.check(library, calls, case)
        else:
            with pytest.raises(self.filter_error):
                calls.ask(library, "book", filters=case.filters)

    @pytest.mark.parametrize("filters", REFUSED.values(), ids=REFUSED)
    def test_a_filter_that_cannot_be_honoured_is_refused(
        self, library: BasePydanticVectorStore, calls: Calls, filters: MetadataFilters
    ) -> None:
        """Dropping or guessing a condition would let through what should stay hidden."""
        with pytest.raises(self.filter_error):
            calls.ask(library, "book", filters=filters)

    @each_mode
    def test_an_unknown_field_is_refused(
        self, library: BasePydanticVectorStore, calls: Calls, mode: Mode
    ) -> None:
        """A misspelt ``!=`` would hide nothing."""
        self.require_mode(mode)
        self.require("raises_on_unknown_field")
        with pytest.raises(self.filter_error, match="tennant"):
            calls.ask(library, "book", mode=mode, filters=where("tennant", "erp", "!="))

    def test_a_filter_on_an_empty_store_gives_nothing(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """There are no fields yet, and nothing that could be hidden."""
        assert calls.ask(store, "book", filters=where("tenant", "erp")).ids == []

    def test_a_filter_is_not_changed(self, library: BasePydanticVectorStore, calls: Calls) -> None:
        """The caller may use it again."""
        filters = all_of(condition("year", [2020, 2021], "in"), condition("tags", "hr", "contains"))
        before = filters.model_copy(deep=True)
        calls.ask(library, "book", filters=filters)
        assert filters == before

    @each_mode
    def test_the_filter_comes_before_the_ranking(
        self, store: BasePydanticVectorStore, calls: Calls, mode: Mode
    ) -> None:
        """All k hits are found although every better one is filtered out."""
        self.require_mode(mode)
        better = [
            make_node(f"b{i:02}", "apple apple apple", metadata={"tenant": "blue"})
            for i in range(60)
        ]
        worse = [
            make_node(f"r{i}", f"apple and other words {i}", metadata={"tenant": "red"})
            for i in range(6)
        ]
        calls.add(store, [*better, *worse])
        found = calls.ask(store, "apple", mode=mode, k=5, filters=where("tenant", "red")).ids
        assert len(found) == 5
        assert all(node_id.startswith("r") for node_id in found)

    @each_mode
    def test_filters_follow_changes_of_metadata(
        self, store: BasePydanticVectorStore, calls: Calls, mode: Mode
    ) -> None:
        """After a replacement only the new values count."""
        self.require_mode(mode)
        calls.add(store, [make_node("a", "apple", metadata={"acl": ["hr"]})])
        calls.add(store, [make_node("b", "apple", metadata={"acl": ["hr"]})])
        assert calls.ask(store, "apple", mode=mode, filters=where("acl", ["hr"], "any")).ids == [
            "a",
            "b",
        ]
        calls.add(store, [make_node("a", "apple", metadata={"acl": ["legal"]})])
        assert calls.ask(store, "apple", mode=mode, filters=where("acl", ["hr"], "any")).ids == [
            "b"
        ]
        assert calls.ask(store, "apple", mode=mode, filters=where("acl", ["legal"], "any")).ids == [
            "a"
        ]

    def test_one_field_may_hold_values_of_several_types(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """Each comparison sees the values of its own type."""
        self.require("supports_mixed_types")
        values: dict[str, Any] = {
            "number": 7,
            "text": "7",
            "list": ["7", "eight"],
            "date": "2024-01-31",
            "truth": True,
            "none": None,
        }
        for node_id, value in values.items():
            calls.add(store, [make_node(node_id, "book", metadata={"field": value})])

        def found(operator: str, value: Any) -> list[str]:
            return sorted(calls.ask(store, "book", filters=where("field", value, operator)).ids)

        assert found("==", 7) == ["number"]
        assert found("==", "7") == ["list", "text"]
        assert found(">", 0) == ["number", "truth"]
        assert found(">=", "2024") == ["date", "list", "text", "truth"]
        assert found("is_empty", None) == ["none"]
        assert found("!=", "7") == ["date", "none", "number", "truth"]
