"""The lexical leg of the embedded store: true BM25, whole lists, the same under any filter."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import MetadataFilters

from llama_index_hybrid_pack.indexing.analyzer import Analyzer
from llama_index_hybrid_pack.indexing.filters import FieldType, matches
from llama_index_hybrid_pack.indexing.stores.base import BM25, LegHits, SearchRequest
from llama_index_hybrid_pack.indexing.stores.local import LocalHybridStore, postings
from llama_index_hybrid_pack.indexing.stores.local.prefilter import facet_numbers, facet_test
from llama_index_hybrid_pack.testing.builders import (
    all_of,
    any_of,
    condition,
    make_node,
    none_of,
    vector,
    where,
)

PLAIN = Analyzer(language=None, identifier_parts=False)


def search(store: LocalHybridStore, text: str, k: int = 10, **options: object) -> LegHits:
    return store.search(SearchRequest(query_str=text, lexical_top_k=k, **options)).legs[BM25]


def reference(texts: dict[str, str], query: str) -> list[tuple[str, float]]:
    """BM25 by its formula, Lucene's idf, k1 = 1.2, b = 0.75."""
    terms = {node_id: PLAIN.terms(text) for node_id, text in texts.items()}
    mean = sum(map(len, terms.values())) / len(terms)
    found = []
    for node_id, own in terms.items():
        counts, score = Counter(own), 0.0
        for term in PLAIN.query_terms(query):
            frequency = sum(term in set(others) for others in terms.values())
            if counts[term]:
                idf = math.log(1 + (len(terms) - frequency + 0.5) / (frequency + 0.5))
                norm = 1.2 * (0.25 + 0.75 * len(own) / mean)
                score += idf * 2.2 * counts[term] / (counts[term] + norm)
        if score:
            found.append((node_id, score))
    return sorted(found, key=lambda hit: (-hit[1], hit[0]))


@pytest.fixture
def texts() -> dict[str, str]:
    chance = random.Random(1)
    words = [f"w{number:03d}" for number in range(60)]
    weights = [1 / (number + 1) for number in range(60)]
    return {
        f"n{number:04d}": " ".join(chance.choices(words, weights, k=chance.randint(1, 39)))
        for number in range(700)
    }


@pytest.fixture
def store(tmp_path: Path, texts: dict[str, str]) -> Iterator[LocalHybridStore]:
    nodes = [
        TextNode(
            id_=node_id,
            text=text,
            embedding=[1.0, 0.0],
            metadata={"shard": number % 50, "half": "even" if number % 2 == 0 else "odd"},
            excluded_embed_metadata_keys=["shard", "half"],
        )
        for number, (node_id, text) in enumerate(texts.items())
    ]
    with LocalHybridStore(tmp_path / "store", analyzer=PLAIN) as store:
        store.add(nodes)
        yield store


QUERIES = ["w000", "w001 w002", "w030 w000 w010", "w059", "w005 w005 w040", "w050 unknown"]


@pytest.mark.parametrize("query", QUERIES)
def test_scores_are_bm25(store: LocalHybridStore, texts: dict[str, str], query: str) -> None:
    right = reference(texts, query)
    hits = search(store, query, 1000)
    assert dict(zip(hits.ids, hits.scores, strict=True)) == pytest.approx(dict(right), rel=1e-5)
    assert list(zip(hits.ids, hits.scores, strict=True)) == sorted(
        zip(hits.ids, hits.scores, strict=True), key=lambda hit: (-hit[1], hit[0])
    )


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("k", [1, 3, 10, 100])
def test_a_short_list_is_the_start_of_the_long_one(
    store: LocalHybridStore, query: str, k: int
) -> None:
    """Ties at the end included, which are many: most documents have few distinct lengths."""
    whole = search(store, query, 1000)
    part = search(store, query, k)
    assert (part.ids, part.scores) == (whole.ids[:k], whole.scores[:k])


FILTERS: dict[str, MetadataFilters] = {
    "one in fifty": where("shard", 7),
    "half": where("half", "even"),
    "nearly all": where("shard", 7, "!="),
    "a range": where("shard", 40, "<"),
    "none": all_of(condition("shard", 7), condition("half", "even")),
    "nested": all_of(
        condition("half", "odd"), any_of(condition("shard", 1), condition("shard", [3, 5], "in"))
    ),
    "or with a range": any_of(condition("shard", 1), condition("shard", 45, ">")),
    "not": none_of(condition("half", "odd")),
}


@pytest.mark.parametrize("wish", FILTERS.values(), ids=FILTERS.keys())
@pytest.mark.parametrize("way", ["as measured", "by rows", "by widening"])
def test_a_filter_changes_neither_scores_nor_completeness(
    store: LocalHybridStore, monkeypatch: pytest.MonkeyPatch, wish: MetadataFilters, way: str
) -> None:
    if way != "as measured":
        by_rows = way == "by rows"
        monkeypatch.setattr(
            postings.PostingsView, "_by_rows_is_cheaper", staticmethod(lambda *_: by_rows)
        )
        monkeypatch.setattr(
            "llama_index_hybrid_pack.indexing.stores.local.rowsets.facet_test", lambda *_: None
        )
    metadata = {node.node_id: node.metadata for node in store.get_nodes()}
    for query in QUERIES:
        whole = search(store, query, 1000)
        passing = [
            (node_id, score)
            for node_id, score in zip(whole.ids, whole.scores, strict=True)
            if matches(wish, metadata[node_id])
        ]
        for k in (1, 10, 1000):
            hits = search(store, query, k, filters=wish)
            assert list(zip(hits.ids, hits.scores, strict=True)) == passing[:k]


def test_node_and_document_ids_restrict_too(store: LocalHybridStore) -> None:
    whole = search(store, "w000", 1000)
    for count in (1, 50, 400):
        wanted = whole.ids[::-1][:count]
        hits = search(store, "w000", 1000, node_ids=wanted)
        assert sorted(hits.ids) == sorted(wanted)
    assert search(store, "w000", node_ids=[]).ids == []
    assert search(store, "w000", doc_ids=["unknown"]).ids == []


def test_removed_documents_do_not_take_places(store: LocalHybridStore) -> None:
    """Documents that the index still holds and the table no longer."""
    whole = search(store, "w000", 1000).ids
    store.delete_nodes(whole[:100])
    left = search(store, "w000", 100).ids
    assert len(left) == 100
    assert not set(left) & set(whole[:100])
    assert sorted(search(store, "w000", 1000).ids) == sorted(whole[100:])


@pytest.mark.parametrize("query", ["", "   ", "unknown", "!!!", "\ud800", "the of and"])
def test_no_word_no_hit(tmp_path: Path, query: str) -> None:
    with LocalHybridStore(tmp_path / "store") as store:
        store.add([make_node("1", "the apple of my eye"), make_node("2", "banana")])
        assert search(store, query).ids == []


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("E-504", "e504"),
        ("v2.1.3", "v213"),
        ("C++", "cpp"),
        ("C#", "csharp"),
        ("88-210", "part"),
        ("user_id", "field"),
        ("CVE-2024-1234", "cve"),
        ("cafe", "accent"),
        ("天気", "cjk"),
    ],
)
def test_identifiers_and_scripts(tmp_path: Path, query: str, first: str) -> None:
    with LocalHybridStore(tmp_path / "store") as store:
        store.add(
            [
                make_node("e504", "error E-504 when starting"),
                make_node("b504", "error B-504 when starting"),
                make_node("v213", "release v2.1.3 notes"),
                make_node("v214", "release v2.1.4 notes"),
                make_node("cpp", "guide for C++ people"),
                make_node("csharp", "guide for C# people"),
                make_node("part", "part 88-210 in stock"),
                make_node("other", "part 88-211 in stock"),
                make_node("field", "the column user_id is unique"),
                make_node("cve", "fixed CVE-2024-1234 yesterday"),
                make_node("cve2", "fixed CVE-2024-9999 yesterday"),
                make_node("accent", "le café du coin"),
                make_node("cjk", "東京都の天気予報"),
            ]
        )
        assert search(store, query).ids[0] == first


def test_a_repeated_query_word_counts_as_often(store: LocalHybridStore) -> None:
    once, twice = search(store, "w005", 5), search(store, "w005 w005", 5)
    assert twice.ids == once.ids
    assert twice.scores == pytest.approx([2 * score for score in once.scores], rel=1e-6)


def test_a_very_long_query_is_answered(store: LocalHybridStore, texts: dict[str, str]) -> None:
    query = " ".join(texts.values())
    assert len(search(store, query, 700).ids) == 700


def test_a_huge_k_is_no_huge_list(store: LocalHybridStore) -> None:
    everything = search(store, "w000", 700)
    assert search(store, "w000", 10**9) == everything
    half = where("half", "even")
    assert search(store, "w000", 10**9, filters=half) == search(store, "w000", 700, filters=half)


def test_texts_with_surrogates_are_found(tmp_path: Path) -> None:
    with LocalHybridStore(tmp_path / "store") as store:
        store.add([make_node("1", "broken \ud800 text", embedding=vector(1))])
        assert search(store, "broken").ids == ["1"]


def test_tests_on_facets_let_every_match_through() -> None:
    """The quicker test may be wider than the filter, never narrower."""
    schema = {"when": FieldType.DATE, "code": FieldType.INT}
    samples = [
        {},
        {"a": 1},
        {"a": 1.0},
        {"a": "1"},
        {"a": True},
        {"a": ["x", 2]},
        {"a": 2**70},
        {"a": None},
        {"when": "2024-01-31"},
        {"when": "2024-01-31T00:00:00Z"},
        {"code": "7"},
        {"code": 7, "a": "x"},
    ]
    wishes = [
        condition("a", 1),
        condition("a", 1.0),
        condition("a", "1"),
        condition("a", ["x", "y"], "in"),
        condition("a", ["x"], "all"),
        condition("a", "x", "contains"),
        condition("a", ["x", "z"], "any"),
        condition("a", 1, "!="),
        condition("a", 0, ">"),
        condition("a", None, "is_empty"),
        condition("when", "2024-01-31"),
        condition("code", 7),
        condition("code", "7"),
    ]
    from llama_index_hybrid_pack.indexing.filters import validate_filters

    def passes(test: object, numbers: set[int]) -> bool:
        if test is None:
            return True
        if isinstance(test, int):
            return test in numbers
        return (all if test.every else any)(passes(member, numbers) for member in test.members)

    tested = 0
    for first in wishes:
        for second in wishes:
            for group in (all_of(first, second), any_of(first, second), none_of(first, second)):
                checked = validate_filters(group, schema=schema)
                test = facet_test(checked, schema)
                tested += test is not None
                for metadata in samples:
                    if matches(group, metadata, schema=schema):
                        assert passes(test, set(facet_numbers(metadata, schema))), (group, metadata)
    assert tested > 100
