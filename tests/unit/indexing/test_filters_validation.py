"""Filters that cannot be honoured are refused with a message that helps; nothing is widened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_index_hybrid_pack.errors import FilterError
from llama_index_hybrid_pack.indexing.filters import (
    FieldType,
    combine,
    matches,
    validate_filters,
)
from llama_index_hybrid_pack.indexing.filters.validation import MAX_DEPTH
from llama_index_hybrid_pack.metadata import STAGES_KEY
from llama_index_hybrid_pack.testing.builders import all_of, any_of, condition, none_of, where
from llama_index_hybrid_pack.testing.store_contract.filter_cases import REFUSED


@pytest.mark.parametrize("filters", REFUSED.values(), ids=REFUSED)
def test_what_the_contract_refuses_is_refused(filters: MetadataFilters) -> None:
    with pytest.raises(FilterError):
        validate_filters(filters)


def _raw(**fields: Any) -> MetadataFilters:
    fields = {"key": "year", "operator": "==", "value": 1, **fields}
    return MetadataFilters.model_construct(
        filters=[MetadataFilter.model_construct(**fields)], condition="and"
    )


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ("tenant == red", "The filter is a str. Give MetadataFilters"),
        ([condition("a", 1)], "The filter is a list. Give MetadataFilters"),
        (condition("a", 1), "The filter is a MetadataFilter. Give MetadataFilters"),
        (_raw(operator="~~"), "Unknown filter operator '~~' on field 'year'. Allowed: '==', '>'"),
        (_raw(value=True, operator=">"), None),
        (_raw(value={"a": 1}), "received {'a': 1}. Give one text or number"),
        (_raw(value=object()), "received a object. Give a text or a number"),
        (_raw(value=None), "received None.*use 'is_empty'"),
        (_raw(value=float("nan")), "received NaN, which equals nothing"),
        (_raw(value=[1.0, float("nan")], operator="in"), "received NaN"),
        (_raw(value=[1, None], operator="in"), "received None"),
        (_raw(value=[[1]], operator="any"), r"received \[1\]"),
        (_raw(value="red", operator="in"), "received 'red'. Give a list.*use '=='"),
        (_raw(value={"red"}, operator="in"), "Give a list"),
        (_raw(value=["a"], operator="text_match"), "Give one text"),
        (_raw(value=1, operator="text_match"), "received 1. Give the text to look for"),
        (_raw(value=0, operator="is_empty"), "'is_empty' on field 'year' received the value 0"),
        (_raw(value=False, operator="is_empty"), "received the value False"),
        (_raw(value="\ud800"), "lone surrogates"),
        (_raw(key="\ud800"), "is not a name"),
        (_raw(key=None), "filter field None is not a name"),
        (_raw(key=STAGES_KEY), "'hybrid_pack_stages' is reserved"),
        (_raw(key="hybrid_pack_x"), "is reserved"),
        (MetadataFilters.model_construct(filters="x", condition="and"), "filters of a group are a"),
        (MetadataFilters.model_construct(filters=["x"], condition="and"), "holds a str"),
        (MetadataFilters.model_construct(filters=[], condition="xor"), "condition 'xor'. Allowed"),
        (any_of(condition("a", 1), all_of()), "OR group holds an empty group"),
        (any_of(condition("a", 1), none_of()), "OR group holds an empty group"),
        (any_of(all_of(all_of(), all_of())), "OR group holds an empty group"),
        (none_of(all_of()), "NOT group holds an empty group"),
    ],
)
def test_messages_say_what_was_received_and_what_to_do(filters: Any, message: str | None) -> None:
    if message is None:
        validate_filters(filters)
        return
    with pytest.raises(FilterError, match=message):
        validate_filters(filters)


def test_an_unknown_field_is_named_with_its_nearest() -> None:
    known = {"tenant", "year", "file_path"}
    for operator, value in (("==", "x"), ("!=", "x"), ("is_empty", None), ("in", ["x"])):
        with pytest.raises(
            FilterError, match=r"'tennant'. Did you mean 'tenant'\? Known fields: 'file_path', "
        ):
            validate_filters(where("tennant", value, operator), known_fields=known)
    with pytest.raises(FilterError, match=r"field 'zzz'\. Known fields:"):
        validate_filters(none_of(any_of(condition("zzz", 1))), known_fields=known)
    with pytest.raises(FilterError, match="Known fields: none"):
        validate_filters(where("zzz", 1), known_fields=[])


def test_many_known_fields_are_not_all_listed() -> None:
    with pytest.raises(FilterError, match=r", …\. Declare") as error:
        validate_filters(where("zzz", 1), known_fields=[f"field{i}" for i in range(500)])
    assert len(str(error.value)) < 500


def test_declared_fields_are_known() -> None:
    assert validate_filters(where("year", 2020), known_fields=[], schema={"year": "int"})


@pytest.mark.parametrize(
    ("kind", "operator", "value"),
    [
        *[("int", "==", value) for value in ("abc", "7.5", 7.5, "", "1_000", "nan")],
        ("float", ">", "much"),
        ("bool", "==", "maybe"),
        ("bool", "==", 2),
        *[("date", ">", v) for v in ("yesterday", "2024-13-01", "2024", "20240131", 5, "24-1-1")],
        ("int", "in", [1, 2.5]),
        ("int", "text_match", "2"),
        ("date", "text_match_insensitive", "2024"),
    ],
)
def test_a_value_that_does_not_fit_the_schema_is_refused(
    kind: str, operator: str, value: Any
) -> None:
    with pytest.raises(FilterError, match=f"declared as '{kind}'"):
        validate_filters(where("field", value, operator), schema={"field": kind})


def test_an_unknown_type_in_the_schema_is_refused() -> None:
    with pytest.raises(FilterError, match=r"declares field 'a' as 'money'\. Allowed types: 'int'"):
        validate_filters(where("a", 1), schema={"a": "money"})


def test_the_normal_form_means_the_same_and_shares_nothing() -> None:
    given = all_of(condition("year", "2020"), all_of(), any_of(condition("price", [1.0], "in")))
    before = given.model_copy(deep=True)
    normal = validate_filters(given, schema={"year": FieldType.INT})
    assert given == before
    assert normal == all_of(condition("year", 2020), any_of(condition("price", [1], "in")))
    assert validate_filters(normal, schema={"year": FieldType.INT}) == normal


def test_what_filters_nothing_becomes_none() -> None:
    for nothing in (None, all_of(), none_of(), all_of(all_of(), none_of()), _empty(None)):
        assert validate_filters(nothing) is None
    assert validate_filters(any_of()) == any_of()


def _empty(group: str | None) -> MetadataFilters:
    return MetadataFilters(filters=[], condition=group)


def test_groups_nest_to_a_stated_depth() -> None:
    filters = where("a", 1)
    for _ in range(MAX_DEPTH - 1):
        filters = none_of(filters)
    assert validate_filters(filters) is not None
    with pytest.raises(FilterError, match=f"nest deeper than {MAX_DEPTH}"):
        validate_filters(none_of(filters))


def test_combine_joins_by_and() -> None:
    red, new = where("tenant", "red"), where("year", 2020, ">=")
    joined = combine(red, None, new)
    assert matches(joined, {"tenant": "red", "year": 2021})
    assert not matches(joined, {"tenant": "blue", "year": 2021})
    assert not matches(joined, {"tenant": "red", "year": 2019})
    assert combine() is None
    assert combine(None, None) is None


def test_combine_keeps_a_not_whatever_it_is_joined_with() -> None:
    # LlamaIndex's auto-retriever merges a NOT filter's members into its own AND.
    hidden = none_of(condition("tenant", "A"), condition("draft", "true"))
    for other in (None, where("year", 2020), any_of(condition("year", 2020)), all_of(), hidden):
        for joined in (combine(hidden, other), combine(other, hidden)):
            assert not matches(joined, {"tenant": "A", "year": 2020})
            assert not matches(joined, {"draft": True, "year": 2020})
            assert matches(joined, {"tenant": "B", "year": 2020})


def test_combine_shares_nothing_with_what_it_was_given() -> None:
    first, second = where("tags", ["a"], "in"), any_of(condition("b", 1))
    before = (first.model_copy(deep=True), second.model_copy(deep=True))
    for joined in (combine(first), combine(first, second)):
        assert joined is not None
        leaf = joined.filters[0]
        while isinstance(leaf, MetadataFilters):
            leaf = leaf.filters[0]
        leaf.value.append("b")
        joined.filters.clear()
    assert (first, second) == before


def test_combine_refuses_what_is_no_filter() -> None:
    with pytest.raises(FilterError, match=r"received a dict\. Give MetadataFilters"):
        combine(where("a", 1), {"a": 1})


def test_a_mandatory_filter_survives_whatever_it_is_combined_with(cases_dir: Path) -> None:
    case = json.loads((cases_dir / "B33.json").read_text())["input"]
    ((key, value),) = case["mandatory_filter"].items()
    mandatory = where(key, value)
    others = [
        None,
        MetadataFilters(filters=[]),
        any_of(),
        any_of(condition(key, "blue"), condition(key, value)),
        none_of(condition(key, value)),
        none_of(none_of(condition(key, "blue"))),
        where("planet", "Mars", "!="),
    ]
    for other in others:
        joined = combine(mandatory, other)
        assert not matches(joined, {key: "blue", "country": "FR"}), other
        assert not matches(joined, {"country": "FR"}), other
    with pytest.raises(FilterError, match="Unknown filter field 'planet'"):
        validate_filters(combine(mandatory, others[-1]), known_fields=[*case["schema"], key])
