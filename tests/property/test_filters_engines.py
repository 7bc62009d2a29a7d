"""Laws of filters over random metadata and random nested filters."""

from __future__ import annotations

import copy
import json
import sqlite3
from datetime import date, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_index_hybrid_pack.errors import FilterError
from llama_index_hybrid_pack.indexing.filters import (
    FACETS_DDL,
    FieldType,
    combine,
    delete_facets,
    facets,
    matches,
    register_functions,
    rows,
    select_rows,
    validate_filters,
    write_facets,
)

KEYS = st.sampled_from(["a", "b", "c c", "d'"])
TEXTS = st.one_of(
    st.sampled_from(["", "x", "X", "xx", "true", "1", "%", "_", "'", "\x00", "a\x00b"]),
    st.sampled_from(["Straße", "STRASSE", "ß", "ss", "İ", "i̇", "é", "E\u0301", "Σ", "ς", "σ"]),
    st.sampled_from(["2024-01-31", "2024-01-31T10:00:00Z"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
)
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.5, -0.5, 1.0, -0.0, float("inf"), 2**53, 2**53 + 1, 2**63 - 1, 2**63]),
    st.sampled_from([-(2**63), -(2**63) - 1, 10**400, 1e308, 5e-324]),
    st.integers(),
    st.floats(allow_nan=False),
)
SCALARS = st.one_of(TEXTS, NUMBERS, st.booleans(), st.none(), st.just(float("nan")))
DATES = st.one_of(
    st.dates(), st.datetimes(), st.datetimes(timezones=st.just(timezone.utc)), st.just(date.min)
)
VALUES = st.one_of(
    SCALARS,
    DATES,
    st.lists(SCALARS, max_size=3),
    st.sampled_from([{}, {"n": 1}, [[]], [["x"]], ("x", 1)]),
)
METADATA = st.dictionaries(KEYS, VALUES, max_size=4)

COMPARISONS = [
    *(FilterOperator.EQ, FilterOperator.NE, FilterOperator.CONTAINS, FilterOperator.GT),
    *(FilterOperator.GTE, FilterOperator.LT, FilterOperator.LTE),
]
LISTS = [FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL]
PARTS = [FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE]


def _condition(key: str, operator: FilterOperator, value: Any) -> MetadataFilter:
    return MetadataFilter(key=key, operator=operator, value=value)


CONDITIONS = st.one_of(
    st.builds(_condition, KEYS, st.sampled_from(COMPARISONS), st.one_of(TEXTS, NUMBERS)),
    st.builds(
        _condition,
        KEYS,
        st.sampled_from(LISTS),
        st.one_of(
            st.lists(TEXTS, max_size=3),
            st.lists(TEXTS, min_size=51, max_size=60),
            st.lists(st.integers(-3, 3), max_size=3),
            st.lists(st.floats(allow_nan=False), max_size=60),
        ),
    ),
    st.builds(_condition, KEYS, st.sampled_from(PARTS), TEXTS),
    st.builds(_condition, KEYS, st.just(FilterOperator.IS_EMPTY), st.none()),
)
GROUP = st.sampled_from([*FilterCondition, None])


def _group(members: list[Any], group: FilterCondition | None) -> MetadataFilters:
    return MetadataFilters(filters=members, condition=group)


TREES = st.recursive(
    CONDITIONS,
    lambda inner: st.builds(_group, st.lists(inner, min_size=1, max_size=3), GROUP),
    max_leaves=8,
)
FILTERS = st.builds(_group, st.lists(TREES, max_size=3), GROUP)
SCHEMAS = st.dictionaries(KEYS, st.sampled_from(FieldType), max_size=3)


@pytest.mark.parametrize("few", [0, 2, 20_000])
@settings(max_examples=100, deadline=None)
@given(metadata=st.lists(METADATA, max_size=6), filters=FILTERS, schema=SCHEMAS)
def test_sql_and_python_pass_the_same_nodes(
    few: int,
    metadata: list[dict[str, Any]],
    filters: MetadataFilters,
    schema: dict[str, FieldType],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "FEW_ROWS", few)  # by bitmaps only, by both, by checks where possible
        connection = _table(dict(enumerate(metadata, 1)), schema)
        try:
            found = select_rows(connection, filters, schema=schema).tolist()
        except FilterError:
            with pytest.raises(FilterError):
                matches(filters, {}, schema=schema)
            return
        finally:
            connection.close()
    expected = [
        row for row, each in enumerate(metadata, 1) if matches(filters, each, schema=schema)
    ]
    assert found == expected


@settings(max_examples=150, deadline=None)
@given(metadata=METADATA, filters=FILTERS)
def test_the_normal_form_means_the_same(metadata: dict[str, Any], filters: MetadataFilters) -> None:
    before = copy.deepcopy((filters, repr(metadata)))
    normal = validate_filters(filters)
    assert matches(normal, metadata) is matches(filters, metadata)
    assert validate_filters(normal) == normal
    assert (filters, repr(metadata)) == before


@settings(max_examples=150, deadline=None)
@given(metadata=METADATA, parts=st.lists(st.one_of(st.none(), FILTERS), max_size=4))
def test_combined_filters_pass_what_every_one_passes(
    metadata: dict[str, Any], parts: list[MetadataFilters | None]
) -> None:
    each = all(matches(part, metadata) for part in parts)
    assert matches(combine(*parts), metadata) is each


@settings(max_examples=100, deadline=None)
@given(metadata=METADATA, tree=TREES)
def test_not_is_the_complement_of_or(metadata: dict[str, Any], tree: Any) -> None:
    either = matches(_group([tree], FilterCondition.OR), metadata)
    assert matches(_group([tree], FilterCondition.NOT), metadata) is not either
    assert matches(_group([tree], FilterCondition.AND), metadata) is either


@settings(max_examples=100, deadline=None)
@given(metadata=METADATA, key=KEYS, value=st.one_of(TEXTS, NUMBERS))
def test_negative_operators_are_complements(metadata: dict[str, Any], key: str, value: Any) -> None:
    def passes(operator: FilterOperator, wanted: Any) -> bool:
        return matches(_group([_condition(key, operator, wanted)], None), metadata)

    assert passes(FilterOperator.NE, value) is not passes(FilterOperator.EQ, value)
    assert passes(FilterOperator.IN, [value]) is passes(FilterOperator.EQ, value)
    assert passes(FilterOperator.NIN, [value]) is not passes(FilterOperator.IN, [value])
    assert passes(FilterOperator.ALL, [value]) is passes(FilterOperator.EQ, value)


@settings(max_examples=200, deadline=None)
@given(METADATA)
def test_facets_are_those_of_the_stored_json(metadata: dict[str, Any]) -> None:
    stored = json.loads(json.dumps(TextNode(metadata=metadata).model_dump(mode="json")))
    assert facets(metadata) == facets(stored["metadata"])


@settings(max_examples=60, deadline=None)
@given(
    metadata=st.lists(METADATA, min_size=1, max_size=8),
    removed=st.sets(st.integers(0, 7)),
)
def test_deleted_rows_leave_nothing_behind(
    metadata: list[dict[str, Any]], removed: set[int]
) -> None:
    connection = _table(dict(enumerate(metadata)), {})
    delete_facets(connection, removed)
    kept = {row: each for row, each in enumerate(metadata) if row not in removed}
    fresh = _table(kept, {})
    query = "SELECT row, coalesce(name, 0), value FROM facets LEFT JOIN fields USING (field)"
    assert sorted(connection.execute(query), key=repr) == sorted(fresh.execute(query), key=repr)
    connection.close()
    fresh.close()


def _table(metadata: dict[int, dict[str, Any]], schema: dict[str, FieldType]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.executescript(FACETS_DDL)
    register_functions(connection)
    write_facets(connection, metadata.items(), schema=schema)
    return connection
