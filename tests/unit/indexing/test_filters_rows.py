"""The facets table: what is written, how it is read, and that nothing is read in full."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_index_hybrid_pack.indexing.filters import (
    FACETS_DDL,
    compile_predicate,
    delete_facets,
    facets,
    facets_fingerprint,
    matches,
    register_functions,
    rows,
    select_rows,
    stored_fields,
    write_facets,
)
from llama_index_hybrid_pack.indexing.filters import sql as statements
from llama_index_hybrid_pack.indexing.filters.validation import validate_filters
from llama_index_hybrid_pack.testing.builders import all_of, any_of, condition, none_of, where


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    opened = sqlite3.connect(":memory:")
    opened.executescript(FACETS_DDL)
    opened.executescript(FACETS_DDL)  # a second run changes nothing
    register_functions(opened)
    yield opened
    opened.close()


def _content(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    found = connection.execute(
        "SELECT row, coalesce(name, ''), value FROM facets LEFT JOIN fields USING (field)"
    )
    return sorted(found, key=repr)


def test_facets_of_a_node() -> None:
    assert facets(
        {
            "text": "x",
            "whole": 2.0,
            "truth": True,
            "list": ["a", 1, "a", None],
            "none": None,
            "empty": "",
            "no elements": [],
            "dict": {"a": 1},
            "hybrid_pack_stages": {"bm25": 1},
        }
    ) == [
        ("text", "x"),
        ("whole", 2),
        ("truth", 1),
        ("truth", "true"),
        ("list", "a"),
        ("list", 1),
        ("none", b"\x00"),
        ("empty", ""),
        ("no elements", b"\x00"),
        ("dict", b"\x01"),
    ]


def test_every_field_is_known_while_a_node_has_it(connection: sqlite3.Connection) -> None:
    assert stored_fields(connection) == frozenset()
    write_facets(connection, [(1, {"a": 1, "none": None, "dict": {}}), (2, {"a": 2, "b": []})])
    assert stored_fields(connection) == {"a", "b", "none", "dict"}
    delete_facets(connection, [1])
    assert stored_fields(connection) == {"a", "b"}
    delete_facets(connection, [2, 99])
    assert stored_fields(connection) == frozenset()
    assert _content(connection) == []


def test_after_any_changes_the_table_equals_a_fresh_one(connection: sqlite3.Connection) -> None:
    metadata = [{"a": i % 3, f"k{i % 4}": [i, str(i)], "n": None} for i in range(40)]
    write_facets(connection, list(enumerate(metadata))[:30])
    delete_facets(connection, range(5, 25))
    write_facets(connection, list(enumerate(metadata))[30:])
    kept = [*range(5), *range(25, 40)]
    fresh = sqlite3.connect(":memory:")
    fresh.executescript(FACETS_DDL)
    write_facets(fresh, [(row, metadata[row]) for row in kept])
    assert _content(connection) == _content(fresh)
    assert stored_fields(connection) == stored_fields(fresh)
    fresh.close()


def test_writing_is_part_of_the_callers_transaction(connection: sqlite3.Connection) -> None:
    connection.commit()
    write_facets(connection, [(1, {"a": 1})])
    assert connection.in_transaction
    connection.rollback()
    assert _content(connection) == []
    assert stored_fields(connection) == frozenset()


def test_the_fingerprint_follows_the_schema() -> None:
    assert facets_fingerprint() == facets_fingerprint({})
    assert facets_fingerprint({"a": "int"}) != facets_fingerprint()
    assert facets_fingerprint({"a": "int"}) != facets_fingerprint({"a": "str"})
    assert facets_fingerprint({"a": "int", "b": "str"}) == facets_fingerprint(
        {"b": "str", "a": "int"}
    )


ATTACKS = [
    "x'; DROP TABLE facets; --",
    "x' OR '1'='1",
    '"; DELETE FROM facets; --',
    "%",
    "_",
    "100%",
    "?",
    ":name",
    "\\",
    "\x00",
    "{}",
    "ünïcode 日本 🙂",
    "",
]


@pytest.mark.parametrize("odd", ATTACKS)
def test_names_and_values_are_never_sql(connection: sqlite3.Connection, odd: str) -> None:
    write_facets(connection, [(1, {odd: odd, "tags": [odd]}), (2, {odd: "other"}), (3, {})])
    for filters in (
        where(odd, odd),
        where(odd, [odd, "else"], "in"),
        where(odd, [odd, *map(str, range(100))], "in"),
        where("tags", [odd], "all"),
        where("tags", odd, "text_match"),
        all_of(condition(odd, odd, "text_match_insensitive"), condition("tags", odd)),
        all_of(condition(odd, "other", "!="), condition("tags", None, "is_empty")),
    ):
        expected = [
            row
            for row, metadata in ((1, {odd: odd, "tags": [odd]}), (2, {odd: "other"}), (3, {}))
            if matches(filters, metadata)
        ]
        assert select_rows(connection, filters).tolist() == expected
    assert select_rows(connection, None).tolist() == [1, 2, 3]


def test_an_empty_table_gives_no_rows(connection: sqlite3.Connection) -> None:
    for filters in (None, where("a", 1), where("a", 1, "!="), none_of(condition("a", 1))):
        found = select_rows(connection, filters)
        assert found.tolist() == []
        assert found.dtype == np.int64


def test_rows_come_rising_and_once(connection: sqlite3.Connection) -> None:
    write_facets(connection, [(row, {"n": [1, 2, 3, row]}) for row in (900, 7, 30, 2)])
    assert select_rows(connection, where("n", 1, ">=")).tolist() == [2, 7, 30, 900]
    assert select_rows(connection, None).tolist() == [2, 7, 30, 900]
    assert select_rows(connection, where("n", [900, 7, 1], "in")).tolist() == [2, 7, 30, 900]


def test_high_row_numbers_cost_no_memory(connection: sqlite3.Connection) -> None:
    first = 2**40  # rows are never given twice, so numbers grow with every write
    write_facets(connection, [(first + i, {"n": i}) for i in range(3)])
    assert select_rows(connection, where("n", 1, "!=")).tolist() == [first, first + 2]


@pytest.mark.parametrize("few", [0, 3, 20_000])
def test_both_ways_to_evaluate_an_and_agree(
    connection: sqlite3.Connection, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "FEW_ROWS", few)
    metadata = {
        row: {"tenant": f"t{row % 5}", "lang": "en" if row % 9 else "de", "n": row}
        for row in range(1, 200)
    }
    write_facets(connection, metadata.items())
    deep = condition("n", 100, "<")
    nested: MetadataFilter | MetadataFilters = deep
    for _ in range(10):
        nested = none_of(none_of(nested))
    for filters in (
        all_of(condition("lang", "en"), condition("tenant", "t1")),
        all_of(condition("tenant", "t1"), condition("lang", "en", "!=")),
        all_of(condition("tenant", "t1"), none_of(condition("lang", "en"))),
        all_of(condition("lang", "en", "!="), condition("tenant", "t2", "!=")),
        all_of(condition("tenant", "t1"), any_of(condition("n", 50, "<"), condition("n", 150))),
        all_of(condition("tenant", "t1"), nested),
        all_of(condition("tenant", ["t1", "t2"], "any"), all_of(condition("n", [6, 11], "in"))),
        all_of(condition("tenant", "none"), condition("lang", "en")),
        all_of(condition("tenant", "t1"), *[condition("n", i, "!=") for i in range(400)]),
    ):
        passes = compile_predicate(filters)
        expected = [row for row, meta in metadata.items() if passes(meta)]
        assert select_rows(connection, filters).tolist() == expected


@pytest.mark.parametrize("size", [10_000, 20_000])
def test_lists_beyond_sqlites_limit_of_parameters(
    connection: sqlite3.Connection, size: int
) -> None:
    write_facets(connection, [(1, {"n": 5, "t": "v5"}), (2, {"n": 0.1 + 0.2, "t": "x"}), (3, {})])
    write_facets(connection, [(4, {"t": "nul\x00"}), (5, {"t": "tab\t"})])
    numbers = [*(float(i) for i in range(size)), 0.1 + 0.2]
    texts = [f"v{i}" for i in range(size)]
    odd = [*texts, "tab\t", "nul\x00"]
    assert select_rows(connection, where("n", numbers, "in")).tolist() == [1, 2]
    assert select_rows(connection, where("t", texts, "any")).tolist() == [1]
    assert select_rows(connection, where("t", texts, "nin")).tolist() == [2, 3, 4, 5]
    assert select_rows(connection, where("t", odd, "in")).tolist() == [1, 4, 5]
    both = all_of(*[condition("t", texts, "in"), condition("n", numbers, "in")] * 2)
    assert select_rows(connection, both).tolist() == [1]


def test_very_wide_groups(connection: sqlite3.Connection) -> None:
    write_facets(connection, [(row, {"n": row}) for row in range(1, 4)])
    wide = [condition("n", i) for i in range(2, 3000)]
    assert select_rows(connection, any_of(*wide)).tolist() == [2, 3]
    assert select_rows(connection, none_of(*wide)).tolist() == [1]
    most = [condition("n", i, "!=") for i in range(2, 3000)]
    assert select_rows(connection, all_of(*most)).tolist() == [1]


@pytest.mark.parametrize(
    ("operator", "value"),
    [
        *[("==", "x"), ("==", 1), ("!=", "x"), ("contains", "x"), ("in", ["x", "y"])],
        *[("in", [str(i) for i in range(200)]), ("nin", [1]), ("any", ["x"]), ("all", ["x", "y"])],
        *[(">", 1), (">=", "x"), ("<", 1), ("<=", "x"), ("is_empty", None)],
        *[("text_match", "x"), ("text_match_insensitive", "x")],
    ],
)
def test_every_condition_uses_an_index(
    connection: sqlite3.Connection, operator: str, value: Any
) -> None:
    checked = validate_filters(where("field", value, operator))
    assert checked is not None
    (leaf,) = checked.filters
    assert isinstance(leaf, MetadataFilter)
    listed = statements.list_rows(leaf, {})
    checks = statements.narrow(statements.ALL_ROWS, [statements.check_row(leaf, {})])
    for text, params in (listed, checks):
        plan = [detail for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {text}", params)]
        scans = [line for line in plan if "SCAN" in line and "json_each" not in line]
        # What may be scanned are results of a part of the statement, never a whole table.
        assert not any("facets" in line or "fields" in line for line in scans), plan
        assert any("facets_by_value (field=?" in line for line in plan), plan
