"""Store contract: metadata filters, the same meaning in every mode."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterOperator,
    MetadataFilter,
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
    outcome,
)
from llama_index_hybrid_pack.testing.store_contract.filter_cases import (
    CONDITIONS,
    GROUPS,
    LIBRARY,
    NESTED,
    REFUSED,
    FilterCase,
)


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

    def check(
        self, store: BasePydanticVectorStore, calls: Calls, cases: Sequence[FilterCase]
    ) -> None:
        """Compare what every case gives with what it should give."""

        def asked(filters: MetadataFilters) -> list[str]:
            return sorted(calls.ask(store, "book", filters=filters).ids)

        def fetched(filters: MetadataFilters) -> list[str]:
            return sorted(node.node_id for node in calls.get_nodes(store, filters=filters))

        expected = {case.name: case.expected.split() for case in cases}
        assert {case.name: outcome(partial(asked, case.filters)) for case in cases} == expected
        if self.supports_get_nodes:
            cases = [case for case in cases if case.filters.filters]
            found = {case.name: outcome(partial(fetched, case.filters)) for case in cases}
            assert found == {case.name: expected[case.name] for case in cases}

    @pytest.mark.parametrize(
        "operator", list(FilterOperator), ids=[o.value for o in FilterOperator]
    )
    def test_operator(
        self, library: BasePydanticVectorStore, calls: Calls, operator: FilterOperator
    ) -> None:
        """On texts, numbers, booleans, dates, lists, dicts, empty and missing fields."""
        self.check(library, calls, [case for case in CONDITIONS if _operator(case) is operator])

    def test_groups_of_conditions(self, library: BasePydanticVectorStore, calls: Calls) -> None:
        """AND, OR and NOT, also of nothing."""
        self.check(library, calls, GROUPS)

    def test_groups_in_groups(self, library: BasePydanticVectorStore, calls: Calls) -> None:
        """At any depth; a store that declares that it cannot must refuse them."""
        if self.supports_nested_filters:
            self.check(library, calls, NESTED)
            return
        for case in NESTED:
            with pytest.raises(self.filter_error):
                calls.ask(library, "book", filters=case.filters)

    def test_filters_that_cannot_be_honoured_are_refused(
        self, library: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """Dropping or guessing a condition would let through what should stay hidden."""

        def ask(filters: MetadataFilters) -> str:
            try:
                return f"accepted: {calls.ask(library, 'book', filters=filters).ids}"
            except self.filter_error:
                return "refused"

        outcomes = {name: outcome(partial(ask, filters)) for name, filters in REFUSED.items()}
        assert outcomes == dict.fromkeys(REFUSED, "refused")

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


def _operator(case: FilterCase) -> FilterOperator | None:
    (item,) = case.filters.filters
    return item.operator if isinstance(item, MetadataFilter) else None
