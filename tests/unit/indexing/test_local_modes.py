"""The query modes of the embedded store and their options."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.indexing.stores.local import LocalHybridStore
from llama_index_hybrid_pack.testing.builders import make_node, vector

Mode = VectorStoreQueryMode


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalHybridStore]:
    """Dense order a, b, c, d; BM25 order for "wanted": d, c."""
    with LocalHybridStore(tmp_path / "store") as store:
        store.add(
            [
                make_node("a", "nothing", embedding=vector(1.0, 0.0)),
                make_node("b", "else", embedding=vector(0.9, 0.1, 0.4)),
                make_node("c", "wanted among other words", embedding=vector(0.5, 0.5)),
                make_node("d", "wanted wanted", embedding=vector(0.0, 1.0)),
            ]
        )
        yield store


def ask(store: LocalHybridStore, mode: object = Mode.HYBRID, **fields: object) -> VectorStoreQuery:
    options = fields.pop("options", {})
    query = VectorStoreQuery(
        **{
            "query_embedding": vector(1.0),
            "query_str": "wanted",
            "similarity_top_k": 4,
            "mode": mode,
            **fields,
        }
    )
    return store.query(query, **options)


def test_default_is_cosine(store: LocalHybridStore) -> None:
    result = ask(store, Mode.DEFAULT)
    assert result.ids == ["a", "b", "c", "d"]
    assert result.similarities == pytest.approx([1.0, 0.9 / np.sqrt(0.98), 0.5**0.5, 0.0])
    assert [node.node_id for node in result.nodes] == result.ids
    assert all(node.embedding is None for node in result.nodes)


@pytest.mark.parametrize("mode", [Mode.TEXT_SEARCH, Mode.SPARSE])
def test_text_modes_are_bm25_and_need_no_vector(store: LocalHybridStore, mode: Mode) -> None:
    result = ask(store, mode, query_embedding=None)
    assert result.ids == ["d", "c"]
    assert all(score > 0 for score in result.similarities)


def test_alpha_at_its_ends_is_one_leg_with_its_scores(store: LocalHybridStore) -> None:
    dense, words = ask(store, Mode.DEFAULT), ask(store, Mode.TEXT_SEARCH)
    for one, leg in ((ask(store, alpha=1.0), dense), (ask(store, alpha=0.0), words)):
        assert (one.ids, one.similarities) == (leg.ids, leg.similarities)
    assert ask(store, alpha=1.0, query_str=None).ids == dense.ids
    assert ask(store, alpha=0.0, query_embedding=None).ids == words.ids


def test_alpha_weighs_normalised_scores(store: LocalHybridStore) -> None:
    result = ask(store, alpha=0.8)
    cosines = dict(zip(*_pairs(ask(store, Mode.DEFAULT)), strict=True))
    assert dict(zip(result.ids, result.similarities, strict=True)) == pytest.approx(
        {
            node_id: 0.8 * cosine + (0.2 if node_id == "d" else 0.0)
            for node_id, cosine in cosines.items()
        }
    )
    assert ask(store).similarities == ask(store, alpha=0.5).similarities


def _pairs(result: object) -> tuple[list[str], list[float]]:
    return result.ids, result.similarities


def test_hybrid_sees_deeper_than_it_returns(store: LocalHybridStore) -> None:
    """c is second on words and third by vector: with one hit per leg fusion would not see it."""
    wish = {"query_embedding": vector(0.0, 0.3, 1.0), "similarity_top_k": 1, "alpha": 0.6}
    assert ask(store, **wish).ids == ["d"]
    with LocalHybridStore.open(store.path, hybrid_depth=1) as shallow:
        assert ask(shallow, **wish).ids == ["b"]


def test_sparse_and_hybrid_top_k(store: LocalHybridStore) -> None:
    assert len(ask(store, hybrid_top_k=3).ids) == 3
    assert ask(store, similarity_top_k=1, hybrid_top_k=4).ids == ask(store).ids
    # One word hit only: d has it all, c none of it.
    result = ask(store, sparse_top_k=1, alpha=0.1)
    scores = dict(zip(result.ids, result.similarities, strict=True))
    assert scores["c"] < 0.1 < scores["d"]


def test_mmr_prefers_what_was_not_said(store: LocalHybridStore) -> None:
    relevant = ask(store, Mode.MMR, mmr_threshold=1.0)
    assert relevant.ids == ["a", "b", "c", "d"]
    diverse = ask(store, Mode.MMR, mmr_threshold=0.3)
    assert diverse.ids[:2] == ["a", "d"]
    # The similarities stay cosines, so that a cut-off keeps its meaning.
    cosines = dict(zip(relevant.ids, relevant.similarities, strict=True))
    assert [cosines[node_id] for node_id in diverse.ids] == diverse.similarities
    assert ask(store, Mode.MMR, options={"mmr_threshold": 0.3}).ids == diverse.ids
    assert ask(store, Mode.MMR, mmr_threshold=0.0).ids[0] == "a"


def test_mmr_chooses_among_the_prefetched(store: LocalHybridStore) -> None:
    def picked(**options: object) -> list[str]:
        return ask(store, Mode.MMR, similarity_top_k=2, mmr_threshold=0.1, options=options).ids

    assert picked() == ["a", "d"]
    assert picked(mmr_prefetch_factor=1) == ["a", "b"]
    assert picked(mmr_prefetch_factor=1.5) == ["a", "c"]
    assert picked(mmr_prefetch_k=3) == ["a", "c"]
    assert picked(mmr_prefetch_k=1) == ["a", "b"]


def test_embeddings_come_when_asked_for(store: LocalHybridStore) -> None:
    result = ask(store, Mode.DEFAULT, options={"include_embeddings": True})
    assert result.nodes[1].embedding == pytest.approx(vector(0.9, 0.1, 0.4))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"similarity_top_k": 0}, "similarity_top_k is 0"),
        ({"similarity_top_k": -3}, "similarity_top_k is -3"),
        ({"similarity_top_k": 2.5}, "similarity_top_k is 2.5"),
        ({"similarity_top_k": True}, "similarity_top_k is True"),
        ({"sparse_top_k": 0}, "sparse_top_k is 0"),
        ({"hybrid_top_k": -1}, "hybrid_top_k is -1"),
        ({"alpha": 1.5}, "alpha is 1.5"),
        ({"alpha": -0.1}, "alpha is -0.1"),
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"alpha": "0.5"}, "alpha is '0.5'"),
        ({"query_embedding": None}, "needs query_embedding"),
        ({"query_str": None}, "needs query_str"),
        ({"mode": Mode.SVM}, "'svm' is not supported.*'text_search'"),
        ({"mode": Mode.SEMANTIC_HYBRID}, "'semantic_hybrid' is not supported"),
        ({"mode": "best"}, "'best' is not supported"),
        ({"mode": Mode.MMR, "mmr_threshold": 2}, "mmr_threshold is 2"),
        ({"mode": Mode.MMR, "options": {"mmr_prefetch_factor": 0.5}}, "mmr_prefetch_factor is 0.5"),
        ({"mode": Mode.MMR, "options": {"mmr_prefetch_k": 0}}, "mmr_prefetch_k is 0"),
        ({"options": {"fetch_k": 3}}, "unknown options.*fetch_k"),
    ],
    ids=str,
)
def test_what_cannot_be_honoured_is_refused(
    store: LocalHybridStore, fields: dict, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        ask(store, **fields)


def test_numpy_numbers_are_numbers(store: LocalHybridStore) -> None:
    result = ask(store, similarity_top_k=np.int64(2), alpha=np.float64(0.5))
    assert len(result.ids) == 2
