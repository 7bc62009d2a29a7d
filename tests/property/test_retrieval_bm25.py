"""Any sequence of changes equals a fresh build, and scores equal those of bm25s."""

from __future__ import annotations

from collections.abc import Sequence

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_index_hybrid_pack.indexing.analyzer import Analyzer
from llama_index_hybrid_pack.indexing.filters import matches
from llama_index_hybrid_pack.retrieval.bm25 import IdentifierBM25Retriever

ANALYZER = Analyzer(language=None)
WORDS = ["ab", "cd", "ef", "gh", "ij", "E-1", "E-2", "报销"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)
IDS = st.sampled_from([f"n{number}" for number in range(8)])
NODES = st.builds(
    lambda node_id, text, tenant: TextNode(
        id_=node_id,
        text=text,
        metadata={"tenant": tenant},
        excluded_embed_metadata_keys=["tenant"],
    ),
    IDS,
    TEXTS,
    st.sampled_from(["red", "blue"]),
)
CHANGES = st.lists(
    st.one_of(st.lists(NODES, max_size=5), st.lists(IDS, max_size=3).map(tuple)), max_size=12
)
QUERIES = st.lists(st.sampled_from([*WORDS, "zz"]), max_size=5).map(" ".join)


def found(hits: Sequence[NodeWithScore]) -> list[tuple[str, float | None, str]]:
    return [(hit.node_id, hit.score, hit.text) for hit in hits]


def apply(
    changes: list[list[TextNode] | tuple[str, ...]], retriever: IdentifierBM25Retriever
) -> None:
    for change in changes:
        if isinstance(change, tuple):
            retriever.delete(change)
        else:
            retriever.add(change)


def remaining(changes: list[list[TextNode] | tuple[str, ...]]) -> list[TextNode]:
    left: dict[str, TextNode] = {}
    for change in changes:
        if isinstance(change, tuple):
            for node_id in change:
                left.pop(node_id, None)
        else:
            left.update({node.node_id: node for node in change})
    return list(left.values())


@settings(max_examples=150, deadline=None)
@given(
    changes=CHANGES,
    queries=st.lists(QUERIES, min_size=1, max_size=4),
    top_k=st.integers(1, 10),
    k1=st.sampled_from([0.0, 1.2, 1.5]),
    b=st.sampled_from([0.0, 0.75, 1.0]),
)
def test_changes_equal_a_fresh_build(
    changes: list[list[TextNode] | tuple[str, ...]],
    queries: list[str],
    top_k: int,
    k1: float,
    b: float,
) -> None:
    changed = IdentifierBM25Retriever(analyzer=ANALYZER, similarity_top_k=top_k, k1=k1, b=b)
    for number, change in enumerate(changes):
        apply([change], changed)
        changed.retrieve(queries[number % len(queries)])  # so that every state has its caches
    fresh = IdentifierBM25Retriever(
        remaining(changes), analyzer=ANALYZER, similarity_top_k=top_k, k1=k1, b=b
    )
    assert len(changed) == len(fresh)
    for query in queries:
        assert found(changed.retrieve(query)) == found(fresh.retrieve(query))


@settings(max_examples=100, deadline=None)
@given(changes=CHANGES, query=QUERIES, top_k=st.integers(1, 6))
def test_a_filter_is_the_unfiltered_ranking_without_what_it_refuses(
    changes: list[list[TextNode] | tuple[str, ...]], query: str, top_k: int
) -> None:
    wish = MetadataFilters(filters=[MetadataFilter(key="tenant", value="red")])
    retriever = IdentifierBM25Retriever(analyzer=ANALYZER, similarity_top_k=100)
    apply(changes, retriever)
    expected = [hit for hit in retriever.retrieve(query) if matches(wish, hit.metadata)]
    narrow = retriever.scoped(filters=wish, top_k=top_k)
    for _ in range(2):  # the second time the decisions are remembered
        assert found(narrow.retrieve(query)) == found(expected[:top_k])


def oracle(texts: Sequence[str], query: str, k1: float, b: float) -> np.ndarray:
    """Scores of every text by bm25s, Lucene's variant, over the same terms."""
    index = bm25s.BM25(method="lucene", k1=k1, b=b)
    index.index([ANALYZER.terms(text) for text in texts], show_progress=False)
    known = [term for term in ANALYZER.query_terms(query) if term in index.vocab_dict]
    if not known:
        return np.zeros(len(texts), dtype=np.float32)
    return index.get_scores(known)


@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=12).filter(any),
    query=QUERIES,
    k1=st.sampled_from([0.5, 1.2, 1.5, 3.0]),
    b=st.sampled_from([0.0, 0.4, 0.75, 1.0]),
)
def test_scores_equal_those_of_bm25s(texts: list[str], query: str, k1: float, b: float) -> None:
    retriever = IdentifierBM25Retriever(
        [TextNode(id_=str(number), text=text) for number, text in enumerate(texts)],
        analyzer=ANALYZER,
        similarity_top_k=len(texts),
        k1=k1,
        b=b,
    )
    scores = oracle(texts, query, k1, b)
    hits = retriever.retrieve(query)
    assert {hit.node_id for hit in hits} == {str(place) for place in np.flatnonzero(scores > 0)}
    for hit in hits:
        assert hit.score == pytest.approx(float(scores[int(hit.node_id)]), rel=1e-5)


def test_scores_equal_those_of_bm25s_on_a_large_corpus() -> None:
    """Large enough for full columns, for blocks of maxima and for ties at the cut."""
    rng = np.random.default_rng(3)
    words = np.array([f"word{number}" for number in range(300)])
    texts = [
        " ".join(words[np.minimum(rng.zipf(1.2, rng.integers(1, 30)), 300) - 1])
        for _ in range(6000)
    ]
    retriever = IdentifierBM25Retriever(
        [TextNode(id_=f"{number:05d}", text=text) for number, text in enumerate(texts)],
        analyzer=ANALYZER,
    )
    retriever.delete([f"{number:05d}" for number in range(0, 6000, 5)])
    retriever.add([TextNode(id_=f"{n:05d}", text=texts[n]) for n in range(0, 6000, 5)])
    for query in ("word1 word2 word250", "word0", "word299 word298", "word5 word5 word17"):
        scores = oracle(texts, query, 1.5, 0.75)
        for top_k in (1, 10, 100, 5000):
            hits = retriever.scoped(top_k=top_k).retrieve(query)
            got = [hit.score for hit in hits]
            best = np.sort(scores[scores > 0])[::-1][:top_k]
            assert got == pytest.approx(best.tolist(), rel=1e-5)
            assert [(-score, hit.node_id) for score, hit in zip(got, hits, strict=True)] == sorted(
                (-score, hit.node_id) for score, hit in zip(got, hits, strict=True)
            )
            if hits:
                cut = got[-1]
                tied = [hit.node_id for hit in retriever.scoped(top_k=6000).retrieve(query)]
                assert [hit.node_id for hit in hits] == tied[: len(hits)], cut
