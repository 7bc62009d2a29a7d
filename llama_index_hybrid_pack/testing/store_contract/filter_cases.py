"""Store contract: filters and the nodes that pass them, for every operator and group."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_index_hybrid_pack.testing.builders import all_of, any_of, condition, none_of, where

T = TypeVar("T", MetadataFilter, MetadataFilters)

#: Node id → metadata of the nodes that the cases below are about.
LIBRARY: dict[str, dict[str, Any]] = {
    "n1": {
        "tenant": "erp",
        "year": 2020,
        "price": 9.5,
        "tags": ["hr", "legal"],
        "draft": True,
        "day": "2024-01-31",
        "title": "Straße nach Rom",
    },
    "n2": {
        "tenant": "ERP",
        "year": 2021,
        "price": 10.0,
        "tags": ["hr-admins"],
        "draft": False,
        "day": "2024-02-01",
        "title": "STRASSE",
    },
    "n3": {"tenant": "erp-archive", "year": 2022, "tags": [], "title": "100% _wild_ 'quoted'"},
    "n4": {"tenant": "erp archive", "year": None, "tags": ["legal", "hr"], "title": ""},
    "n5": {"note": {"deep": 1}},
}
_EVERY = " ".join(sorted(LIBRARY))


class FilterCase(NamedTuple):
    """One filter and the ids of :data:`LIBRARY` that pass it."""

    name: str
    filters: MetadataFilters
    expected: str


def _case(name: str, key: str, operator: str, value: Any, expected: str) -> FilterCase:
    return FilterCase(name, where(key, value, operator), expected)


#: One condition each: every operator, on texts, numbers, booleans, lists and missing fields.
CONDITIONS = [
    _case("text equal is exact", "tenant", "==", "erp", "n1"),
    _case("text equal with a dash", "tenant", "==", "erp-archive", "n3"),
    _case("text equal with a space", "tenant", "==", "erp archive", "n4"),
    _case("text equal is case-sensitive", "tenant", "==", "ERP", "n2"),
    _case("text equal nothing", "tenant", "==", "er", ""),
    _case("no wildcards in equal", "tenant", "==", "erp%", ""),
    _case("equal to an empty text", "title", "==", "", "n4"),
    _case("not equal keeps the missing", "tenant", "!=", "erp", "n2 n3 n4 n5"),
    _case("not equal keeps None", "year", "!=", 2020, "n2 n3 n4 n5"),
    _case("number equal", "year", "==", 2021, "n2"),
    _case("whole number equals decimal", "price", "==", 10, "n2"),
    _case("decimal equals whole number", "year", "==", 2021.0, "n2"),
    _case("text is no number", "year", "==", "2021", ""),
    _case("number is no text", "tenant", "==", 1, ""),
    _case("greater", "year", ">", 2020, "n2 n3"),
    _case("greater or equal", "year", ">=", 2021, "n2 n3"),
    _case("less", "year", "<", 2021, "n1"),
    _case("less or equal", "price", "<=", 9.5, "n1"),
    _case("date from", "day", ">=", "2024-02-01", "n2"),
    _case("date before", "day", "<", "2024-02-01", "n1"),
    _case("text is not above a number", "tenant", ">", 0, ""),
    _case("number is not below a text", "year", "<", "z", ""),
    _case("nothing missing is below", "price", "<", 1e9, "n1 n2"),
    _case("in", "tenant", "in", ["erp", "ERP", "else"], "n1 n2"),
    _case("in numbers", "year", "in", [2020, 2022], "n1 n3"),
    _case("in is exact", "tenant", "in", ["er", "erp "], ""),
    _case("in nothing", "tenant", "in", [], ""),
    _case("in a long list", "year", "in", [*range(3000, 13_000), 2021], "n2"),
    _case(
        "in a long list of texts", "tenant", "in", [f"t{i}" for i in range(9_999)] + ["erp"], "n1"
    ),
    _case("not in", "tenant", "nin", ["erp", "ERP"], "n3 n4 n5"),
    _case("not in nothing", "tenant", "nin", [], _EVERY),
    _case("boolean as text", "draft", "==", "true", "n1"),
    _case("boolean as number", "draft", "==", 0, "n2"),
    _case("not true keeps the missing", "draft", "!=", "true", "n2 n3 n4 n5"),
    _case("contains", "tags", "contains", "legal", "n1 n4"),
    _case("contains no part of a text", "tags", "contains", "admins", ""),
    _case("any", "tags", "any", ["hr", "board"], "n1 n4"),
    _case("any of one is exact", "tags", "any", ["hr"], "n1 n4"),
    _case("any of nothing", "tags", "any", [], ""),
    _case("all", "tags", "all", ["hr", "legal"], "n1 n4"),
    _case("all of one", "tags", "all", ["hr-admins"], "n2"),
    _case("all with a stranger", "tags", "all", ["hr", "board"], ""),
    _case("all of nothing", "tags", "all", [], ""),
    _case("equal finds a list's element", "tags", "==", "hr", "n1 n4"),
    _case("not equal sees a list's element", "tags", "!=", "hr", "n2 n3 n5"),
    _case("in finds a list's element", "tags", "in", ["hr-admins", "x"], "n2"),
    _case("contains on a single value", "tenant", "contains", "erp", "n1"),
    _case("any on a single value", "tenant", "any", ["erp", "x"], "n1"),
    _case("part of a text", "title", "text_match", "nach", "n1"),
    _case("part of a text, case-sensitive", "title", "text_match", "NACH", ""),
    _case("part of a text, inside a word", "title", "text_match", "tra", "n1"),
    _case("percent is no wildcard", "title", "text_match", "0% _", "n3"),
    _case("underscore is no wildcard", "title", "text_match", "S_raße", ""),
    _case("quotes in a part", "title", "text_match", "'quo", "n3"),
    _case("part, any case", "title", "text_match_insensitive", "NACH rom", "n1"),
    _case("part, any case of Unicode", "title", "text_match_insensitive", "strasse", "n1 n2"),
    _case("part of a missing text", "note", "text_match", "x", ""),
    _case("part of a number", "year", "text_match", "20", ""),
    _case("empty", "tags", "is_empty", None, "n3 n5"),
    _case("empty None", "year", "is_empty", None, "n4 n5"),
    _case("empty text", "title", "is_empty", None, "n4 n5"),
    _case("a dict is not empty", "note", "is_empty", None, "n1 n2 n3 n4"),
    _case("a dict equals nothing", "note", "==", "deep", ""),
    _case("a dict is not equal", "note", "!=", "deep", _EVERY),
]

#: Groups without groups in them.
GROUPS = [
    FilterCase("no condition", MetadataFilters(filters=[]), _EVERY),
    FilterCase(
        "no condition named",
        MetadataFilters(filters=[condition("year", 2020)], condition=None),
        "n1",
    ),
    FilterCase("and", all_of(condition("year", 2020, ">"), condition("tenant", "ERP", "!=")), "n3"),
    FilterCase("or", any_of(condition("year", 2020), condition("tenant", "ERP")), "n1 n2"),
    FilterCase("or of nothing", any_of(), ""),
    FilterCase(
        "not is none of them",
        none_of(condition("year", 2020), condition("tenant", "ERP")),
        "n3 n4 n5",
    ),
    FilterCase("not of one negative", none_of(condition("tenant", "erp", "!=")), "n1"),
    FilterCase(
        "range", all_of(condition("year", 2020, ">="), condition("year", 2022, "<")), "n1 n2"
    ),
    FilterCase("contradiction", all_of(condition("tenant", "erp"), condition("tenant", "ERP")), ""),
]


def _negated(filters: MetadataFilters, *, times: int) -> MetadataFilters:
    for _ in range(times):
        filters = none_of(filters)
    return filters


#: Groups in groups.
NESTED = [
    FilterCase(
        "and in or",
        any_of(
            all_of(condition("tags", "hr", "contains"), condition("year", 2000, ">")),
            condition("tenant", ["ERP", "x"], "in"),
        ),
        "n1 n2",
    ),
    FilterCase(
        "or in and",
        all_of(
            any_of(condition("year", 2020), condition("year", 2022)),
            condition("tenant", "erp-archive"),
        ),
        "n3",
    ),
    FilterCase(
        "not in and", all_of(condition("year", 2000, ">"), none_of(condition("draft", 1))), "n2 n3"
    ),
    FilterCase(
        "not in or", any_of(condition("year", 2020), none_of(condition("year", 0, ">"))), "n1 n4 n5"
    ),
    FilterCase(
        "not of and", none_of(all_of(condition("year", 2020), condition("draft", 1))), "n2 n3 n4 n5"
    ),
    FilterCase("not of not", none_of(none_of(condition("tenant", "erp"))), "n1"),
    FilterCase("empty or in and", all_of(condition("tenant", "erp"), any_of()), ""),
    FilterCase("empty and in and", all_of(condition("tenant", "erp"), all_of()), "n1"),
    FilterCase(
        "four levels",
        all_of(any_of(none_of(all_of(condition("year", 2021, ">="))), condition("tenant", "ERP"))),
        "n1 n2 n4 n5",
    ),
    FilterCase("twenty levels", _negated(where("tenant", "erp"), times=20), "n1"),
]


def _unchecked(item: T, **fields: str) -> T:
    """Return a copy with values that pydantic did not see, as broken callers make them."""
    return item.model_copy(update=fields)


#: Filters that no store can honour.
REFUSED = {
    "in with one value": where("tenant", "erp", "in"),
    "any with one value": where("tags", "hr", "any"),
    "greater than a list": where("year", [2020], ">"),
    "equal to a list": where("tags", ["hr"]),
    "equal to None": where("tenant", None),
    "part that is a number": where("title", 5, "text_match"),
    "NaN": where("year", float("nan"), ">"),
    "unknown operator": all_of(_unchecked(condition("year", 2020), operator="~~")),
    "unknown condition": _unchecked(where("year", 2020), condition="xor"),
}
