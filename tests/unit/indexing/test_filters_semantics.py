"""The meaning of filters, in Python and over the facets table, on examples."""

from __future__ import annotations

import copy
import json
import sqlite3
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from llama_index_hybrid_pack.errors import FilterError
from llama_index_hybrid_pack.indexing.filters import (
    FACETS_DDL,
    FieldType,
    compile_predicate,
    facets,
    matches,
    register_functions,
    select_rows,
    write_facets,
)
from llama_index_hybrid_pack.testing.builders import all_of, any_of, condition, none_of, where
from llama_index_hybrid_pack.testing.store_contract.filter_cases import (
    CONDITIONS,
    GROUPS,
    LIBRARY,
    NESTED,
    FilterCase,
)

CASES = [*CONDITIONS, *GROUPS, *NESTED]


def table(
    rows: Mapping[int, Mapping[str, Any]], schema: Mapping[str, FieldType | str] | None = None
) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.executescript(FACETS_DDL)
    register_functions(connection)
    write_facets(connection, rows.items(), schema=schema)
    return connection


@pytest.fixture
def library() -> Iterator[sqlite3.Connection]:
    connection = table({int(node_id[1:]): metadata for node_id, metadata in LIBRARY.items()})
    yield connection
    connection.close()


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_cases_of_the_store_contract_hold_in_python_and_in_sql(
    library: sqlite3.Connection, case: FilterCase
) -> None:
    expected = case.expected.split()
    passed = [node_id for node_id, meta in LIBRARY.items() if matches(case.filters, meta)]
    assert passed == expected
    assert [f"n{row}" for row in select_rows(library, case.filters)] == expected


def test_every_operator_of_llama_index_is_among_the_cases() -> None:
    assert {item.operator for case in CASES for item in _leaves(case.filters)} == set(
        FilterOperator
    )


def test_reported_negation_of_a_missing_field(cases_dir: Path) -> None:
    case = json.loads((cases_dir / "B32.json").read_text())
    found = [
        matches(where(key, value, operator), case["input"]["meta"])
        for key, operator, value in case["input"]["filters"]
    ]
    assert found == case["expected"]["matches"]


def _tree(given: Any) -> MetadataFilter | MetadataFilters:
    if isinstance(given, list):
        key, operator, value = given
        return condition(key, value, operator)
    ((name, members),) = given.items()
    return MetadataFilters(filters=[_tree(member) for member in members], condition=name)


def test_reported_groups_in_groups(cases_dir: Path) -> None:
    case = json.loads((cases_dir / "B35.json").read_text())
    filters = _tree(case["input"]["filter"])
    assert isinstance(filters, MetadataFilters)
    docs = {int(row): metadata for row, metadata in case["input"]["docs"].items()}
    expected = [int(row) for row in case["expected"]["matches"]]
    assert [row for row, metadata in docs.items() if matches(filters, metadata)] == expected
    assert select_rows(table(docs), filters).tolist() == expected


def test_reported_equality_that_matched_other_words(cases_dir: Path) -> None:
    case = json.loads((cases_dir / "B38.json").read_text())
    key, operator, value = case["input"]["filter"]
    rows = {row: {key: text} for row, text in enumerate(case["input"]["values"])}
    found = select_rows(table(rows), where(key, value, operator))
    assert [rows[row][key] for row in found.tolist()] == case["expected"]["matches"]


class Colour(str, Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "operator", "wanted", "expected"),
    [
        (datetime(2024, 1, 31, 10, tzinfo=timezone.utc), ">=", "2024-01-31", True),
        (datetime.fromisoformat("2024-01-31T10:00:00"), "==", "2024-01-31T10:00:00", True),
        (date(2024, 1, 31), "<", "2024-02", True),
        (Colour.RED, "==", "red", True),
        (np.int64(5), ">", 4, True),
        (np.float32(0.5), "==", 0.5, True),
        (np.bool_(True), "==", "true", True),
        (("a", "b"), "contains", "b", True),
        ({"a", "b"}, "all", ["a", "b"], True),
        (Decimal("1.5"), "==", "1.5", True),  # as LlamaIndex stores it
        (float("nan"), "==", 0, False),
        (float("nan"), "!=", 0, True),
        (float("nan"), "is_empty", None, True),
        (float("inf"), ">", 1e308, False),  # LlamaIndex stores null for it
        (float("-inf"), "is_empty", None, True),
        ([float("inf")], "is_empty", None, False),
        (10**400, ">", 1e308, True),
        (2**53 + 1, "==", 2**53, False),
        (2**63, "==", 2.0**63, True),
        ("\ud800", "==", "x", False),
        ("\ud800", "is_empty", None, False),
        ("a\x00b", "text_match", "\x00b", True),
        ("a\x00b", "==", "a", False),
        (b"bytes", "==", "bytes", True),
        (object(), "is_empty", None, False),
        ([[1]], "contains", 1, False),
        ([None], "is_empty", None, False),
        ([""], "is_empty", None, False),
        ([""], "==", "", True),
        ({}, "is_empty", None, False),
        (np.array([1, 2]), "is_empty", None, False),
        (True, ">", 0, True),
        (False, "==", "false", True),
        (False, "==", "False", False),
        (1, "==", "true", False),
    ],
)
def test_values_of_every_kind(value: Any, operator: str, wanted: Any, expected: bool) -> None:
    filters = where("field", wanted, operator)
    assert matches(filters, {"field": value}) is expected
    assert (select_rows(table({1: {"field": value}}), filters).tolist() == [1]) is expected


def test_values_compare_as_llama_index_stores_them() -> None:
    metadata = {
        "day": date(2024, 1, 31),
        "zulu": datetime(2024, 1, 31, 10, 0, 0, 5, tzinfo=timezone.utc),
        "naive": datetime.fromisoformat("2024-01-31T10:00:00"),
        "colour": Colour.RED,
        "tags": ("a", "b"),
        "decimal": Decimal("1.50"),
        "deep": {"when": date(2024, 1, 1)},
    }
    stored = TextNode(metadata=metadata).model_dump(mode="json")["metadata"]
    assert facets(metadata) == facets(stored)


@pytest.mark.parametrize(
    ("kind", "stored", "operator", "wanted", "expected"),
    [
        ("int", "2007", "==", 2007, True),
        ("int", 2007, "==", "2007", True),
        ("int", "2007.0", ">=", "2007", True),
        ("int", " 12 ", "in", ["12"], True),
        ("int", "many", "==", 1, False),
        ("int", "many", "!=", 1, True),
        ("int", "many", "is_empty", None, False),
        ("int", 7.5, "==", 7, False),
        ("int", True, "==", 1, True),
        ("float", "9.5", ">", 9, True),
        ("float", "1e3", "==", 1000, True),
        ("float", "10", ">", "9", True),  # as texts it would be below
        ("str", 2007, "==", "2007", True),
        ("str", 2007.0, "==", 2007, True),
        ("str", True, "==", "true", True),
        ("str", 2007, "text_match", "00", True),
        ("bool", "True", "==", 1, True),
        ("bool", "false", "==", "FALSE", True),
        ("bool", 1, "!=", "true", False),
        ("bool", "maybe", "==", 1, False),
        ("date", "2024-01-31", "==", "2024-01-31T00:00:00Z", True),
        ("date", "2024-01-31T23:30:00-02:00", ">", "2024-02-01", True),
        ("date", "2024-01-31T23:30:00+0200", "<", "2024-01-31 22:00", True),
        ("date", "2024-01-31T10:00:00.5", "==", "2024-01-31T10:00:00.500000Z", True),
        ("date", date(2024, 1, 31), "in", ["2024-01-31"], True),
        ("date", datetime(2024, 1, 31, tzinfo=timezone.utc), "==", "2024-01-31", True),
        ("date", "last summer", "<", "2024-01-01", False),
        ("date", None, "is_empty", None, True),
        ("date", ["2023-01-01", "2024-01-31"], "any", ["2024-01-31T00:00Z"], True),
        ("date", 2024, "<", "2025-01-01", False),
    ],
)
def test_a_schema_brings_both_sides_to_one_type(
    kind: str, stored: Any, operator: str, wanted: Any, expected: bool
) -> None:
    schema = {"field": FieldType(kind)}
    filters = where("field", wanted, operator)
    assert matches(filters, {"field": stored}, schema=schema) is expected
    rows = select_rows(table({1: {"field": stored}}, schema), filters, schema=schema).tolist()
    assert (rows == [1]) is expected


def test_without_a_schema_a_text_is_no_number() -> None:
    assert not matches(where("year", 2007), {"year": "2007"})
    assert not matches(where("year", "2007"), {"year": 2007})


def test_no_filter_passes_everything_and_changes_nothing() -> None:
    metadata = {"tags": ["a"], "deep": {"n": 1}}
    before = copy.deepcopy(metadata)
    assert matches(None, metadata)
    assert matches(MetadataFilters(filters=[]), metadata)
    assert matches(where("tags", "a"), metadata)
    assert metadata == before


def test_an_unlisted_condition_reads_as_and() -> None:
    both = MetadataFilters(filters=[condition("a", 1), condition("b", 2)], condition=None)
    assert matches(both, {"a": 1, "b": 2})
    assert not matches(both, {"a": 1})


def test_an_empty_or_passes_nothing_wherever_it_stands() -> None:
    assert not matches(any_of(), {"a": 1})
    assert not matches(all_of(condition("a", 1), any_of()), {"a": 1})
    assert matches(any_of(condition("a", 1), any_of()), {"a": 1})
    assert matches(none_of(), {"a": 1})


def test_a_predicate_is_validated_once_and_used_often() -> None:
    passes = compile_predicate(where("year", 2000, ">"))
    assert [passes({"year": year}) for year in (1999, 2000, 2001, "2001", None)] == [
        *(False, False, True, False, False)
    ]
    with pytest.raises(FilterError):
        compile_predicate(where("year", [1], ">"))


@pytest.mark.parametrize("group", list(FilterCondition))
@pytest.mark.parametrize(
    ("operator", "wanted"),
    [
        *[(op, value) for op in ("==", "!=") for value in ("red", "", 1, 2.5)],
        *[(op, value) for op in (">", ">=", "<", "<=") for value in (1, 2.5)],
        *[(op, value) for op in ("in", "nin") for value in (["red", ""], [1, 2], [2.5], [])],
        *[("text_match", "e"), ("text_match_insensitive", "RE"), ("is_empty", None)],
    ],
)
def test_flat_filters_on_plain_values_equal_llama_index(
    operator: str, wanted: Any, group: FilterCondition
) -> None:
    # Where types agree; what LlamaIndex gets wrong is listed in semantics.py.
    text = operator.startswith("text")
    ordered = operator in {">", ">=", "<", "<="}
    values = ["red", "Red", "x", "", None] if text else [0, 1, 2, 2.5, None]
    if not text and not ordered:
        values = [*values, "red", "blue", ""]
    filters = MetadataFilters(
        filters=[condition("field", wanted, operator), condition("other", 1)], condition=group
    )
    for value in values:
        for metadata in ({"field": value}, {"field": value, "other": 1}, {"other": 2}):
            reference = build_metadata_filter_fn(lambda _, m=metadata: m, filters)
            assert matches(filters, metadata) is reference("id"), metadata


def _leaves(filters: MetadataFilters) -> Iterator[MetadataFilter]:
    for item in filters.filters:
        if isinstance(item, MetadataFilters):
            yield from _leaves(item)
        else:
            yield item
