"""The dense leg of the embedded store is exact, whatever the vectors look like."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from llama_index.core.schema import TextNode

from llama_index_hybrid_pack.indexing.stores.base import DENSE, LegHits, SearchRequest
from llama_index_hybrid_pack.indexing.stores.local import LocalHybridStore, scan
from llama_index_hybrid_pack.indexing.stores.local.gate import Gate
from llama_index_hybrid_pack.indexing.stores.local.quantizer import (
    QuantizedVectors,
    Range,
    one_thread,
)
from llama_index_hybrid_pack.indexing.stores.local.records import unit
from llama_index_hybrid_pack.testing.builders import where

DIMENSION = 48


def nodes(vectors: np.ndarray, start: int = 0) -> list[TextNode]:
    return [
        TextNode(
            id_=f"n{number:05d}",
            text="x",
            embedding=vector.tolist(),
            metadata={"group": number % 100},
        )
        for number, vector in enumerate(vectors, start)
    ]


def search(store: LocalHybridStore, query: np.ndarray, k: int, **options: object) -> LegHits:
    return store.search(SearchRequest(query_embedding=query, dense_top_k=k, **options)).legs[DENSE]


def expected(vectors: np.ndarray, query: np.ndarray, k: int, ids: Sequence[int]) -> LegHits:
    """Exact cosines, rounded to float32, by score and then by id."""
    units = unit(vectors[list(ids)].astype(np.float32)).astype(np.float64)
    wish = unit(query.astype(np.float32)[None])[0].astype(np.float64)
    scores = (units @ wish).astype(np.float32).tolist()
    ranked = sorted(zip(scores, ids, strict=True), key=lambda pair: (-pair[0], pair[1]))[:k]
    return [f"n{number:05d}" for _, number in ranked], [score for score, _ in ranked]


def assert_exact(
    store: LocalHybridStore,
    vectors: np.ndarray,
    query: np.ndarray,
    k: int,
    ids: Sequence[int] | None = None,
    **options: object,
) -> None:
    hits = search(store, query, k, **options)
    right_ids, right_scores = expected(
        vectors, query, k, range(len(vectors)) if ids is None else ids
    )
    assert hits.scores == pytest.approx(right_scores, abs=2e-7)
    assert hits.ids == right_ids


def uniform(rng: np.random.Generator, size: int) -> np.ndarray:
    return rng.standard_normal((size, DIMENSION))


def clustered(rng: np.random.Generator, size: int) -> np.ndarray:
    """Near-copies: hundreds of vectors differ by less than the codes can tell."""
    centres = rng.standard_normal((3, DIMENSION))
    return centres[rng.integers(0, 3, size)] + 1e-4 * rng.standard_normal((size, DIMENSION))


def skewed(rng: np.random.Generator, size: int) -> np.ndarray:
    """One dimension is a hundred times larger than the others, as in some embedding models."""
    vectors = rng.standard_normal((size, DIMENSION))
    vectors[:, 7] += 100.0
    return vectors


def copies(rng: np.random.Generator, size: int) -> np.ndarray:
    """Few distinct vectors, many times each: ties everywhere."""
    return rng.standard_normal((5, DIMENSION))[rng.integers(0, 5, size)]


def one_hot(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.eye(DIMENSION)[rng.integers(0, DIMENSION, size)]


def mixed_lengths(rng: np.random.Generator, size: int) -> np.ndarray:
    return uniform(rng, size) * np.exp(rng.normal(0, 8, size))[:, None]


SHAPES = [uniform, clustered, skewed, copies, one_hot, mixed_lengths]


@pytest.mark.parametrize("shape", SHAPES)
def test_exact_order_and_scores(tmp_path: Path, shape: object) -> None:
    rng = np.random.default_rng(1)
    vectors = shape(rng, 3000).astype(np.float32)
    with LocalHybridStore(tmp_path / "store") as store:
        store.add(nodes(vectors))
        for query in (*vectors[:4], *uniform(rng, 4)):
            for k in (1, 10, 100):
                assert_exact(store, vectors, query, k)
        assert_exact(store, vectors, vectors[0], 3000)
        assert_exact(store, vectors, vectors[0], 5000)


def test_later_vectors_may_lie_outside_the_first_ones(tmp_path: Path) -> None:
    """The codes' range follows: the first batch is narrow, later ones are anything."""
    rng = np.random.default_rng(2)
    narrow = np.full((50, DIMENSION), 1.0) + 0.01 * uniform(rng, 50)
    vectors = np.concatenate(
        [narrow, -narrow, one_hot(rng, 30), uniform(rng, 400), np.zeros((2, DIMENSION))]
    ).astype(np.float32)
    with LocalHybridStore(tmp_path / "store") as store:
        start = 0
        for size in (1, 1, 48, 50, 1, 29, 402):
            store.add(nodes(vectors[start : start + size], start))
            start += size
            known = vectors[:start]
            for query in (known[-1] + 1e-3, known[0], np.eye(DIMENSION)[3]):
                assert_exact(store, known, query, 10)


def test_filters_are_exact_at_every_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By gathering the rows, and by scanning under a bitmap."""
    rng = np.random.default_rng(3)
    vectors = uniform(rng, 2000).astype(np.float32)
    with LocalHybridStore(tmp_path / "store") as store:
        store.add(nodes(vectors))
        store.delete_nodes([f"n{number:05d}" for number in range(0, 2000, 7)])
        alive = [number for number in range(2000) if number % 7]
        for gathered in (10**9, 0):
            monkeypatch.setattr(scan, "_GATHER_LEAST", gathered)
            monkeypatch.setattr(scan, "_GATHER_SHARE", 0.0)
            for below in (1, 5, 50, 99):
                ids = [number for number in alive if number % 100 < below]
                wish = where("group", below, "<")
                for k in (10, 100, 3000):
                    assert_exact(store, vectors, vectors[0], k, ids, filters=wish)
            assert search(store, vectors[0], 5, filters=where("group", 100, ">")).ids == []
            store.update_metadata({"n00001": {"group": 1}})  # a new generation, nothing remembered


def test_removed_rows_never_take_a_place(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    vectors = uniform(rng, 1500).astype(np.float32)
    with LocalHybridStore(tmp_path / "store") as store:
        store.add(nodes(vectors))
        best = search(store, vectors[0], 200).ids
        store.delete_nodes(best)
        alive = [number for number in range(1500) if f"n{number:05d}" not in set(best)]
        assert_exact(store, vectors, vectors[0], 100, alive)
        assert store.describe()["dense"]["removed_rows"] == 200
    with LocalHybridStore(tmp_path / "store") as store:
        assert_exact(store, vectors, vectors[0], 100, alive)
        assert store.describe()["dense"]["removed_rows"] == 0


def test_many_removed_rows_are_swept_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    vectors = uniform(rng, 6000).astype(np.float32)
    with LocalHybridStore(tmp_path / "store") as store:
        store.add(nodes(vectors))
        search(store, vectors[0], 1)
        store.delete_nodes([f"n{number:05d}" for number in range(3000)])
        assert_exact(store, vectors, vectors[0], 50, range(3000, 6000))
        described = store.describe()["dense"]
        assert (described["rows"], described["removed_rows"]) == (3000, 0)


def test_a_zero_vector_has_cosine_zero(tmp_path: Path) -> None:
    vectors = np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]])
    with LocalHybridStore(tmp_path / "store") as store:
        store.add(nodes(vectors))
        hits = search(store, np.array([2.0, 0.0]), 3)
        assert (hits.ids, hits.scores) == (["n00000", "n00001", "n00002"], [1.0, 0.0, -1.0])
        hits = search(store, np.zeros(2), 2)
        assert (hits.ids, hits.scores) == (["n00000", "n00001"], [0.0, 0.0])


def test_inverted_lists_beyond_the_threshold(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    centres = uniform(rng, 40)
    vectors = (centres[rng.integers(0, 40, 3000)] + 0.3 * uniform(rng, 3000)).astype(np.float32)

    def recall(store: LocalHybridStore, known: np.ndarray) -> float:
        shares = []
        for query in known[:50]:
            found = search(store, query, 20).ids
            assert len(found) == 20
            right, _ = expected(known, query, 20, range(len(known)))
            shares.append(len(set(found) & set(right)) / 20)
        return float(np.mean(shares))

    path = tmp_path / "store"
    with LocalHybridStore(path, inverted_above=1000) as store:
        store.add(nodes(vectors[:900]))
        search(store, vectors[0], 1)
        assert "in full" in store.describe()["dense"]["engine"]
        store.add(nodes(vectors[900:2000], 900))
        assert "inverted lists" in store.describe()["dense"]["engine"]
        assert recall(store, vectors[:2000]) >= 0.95
        store.add(nodes(vectors[2000:], 2000))
        assert recall(store, vectors) >= 0.95
        for below in (1, 60):
            ids = [number for number in range(3000) if number % 100 < below]
            wish = where("group", below, "<")
            assert_exact(store, vectors, vectors[0], 20, ids, filters=wish)
        store.delete_nodes([f"n{number:05d}" for number in range(100)])
        assert not set(search(store, vectors[0], 50).ids) & {f"n{n:05d}" for n in range(100)}
    with LocalHybridStore(path, inverted_above=1000) as store:
        assert "inverted lists" in store.describe()["dense"]["engine"]
        wish = where("group", 60, "<")
        ids = [number for number in range(100, 3000) if number % 100 < 60]
        assert_exact(store, vectors, vectors[0], 20, ids, filters=wish)
        store.optimize()
        assert "inverted lists" in store.describe()["dense"]["engine"]
    (file,) = (path / "dense").glob("inverted-*.faiss")
    file.write_bytes(file.read_bytes()[:1000])
    with LocalHybridStore(path, inverted_above=1000) as store:
        assert_exact(store, vectors, vectors[0], 20, range(100, 3000))
    with LocalHybridStore(path, inverted_above=None) as store:
        assert "in full" in store.describe()["dense"]["engine"]


def test_searches_run_while_the_store_grows(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    vectors = uniform(rng, 2000).astype(np.float32)
    with LocalHybridStore(tmp_path / "store") as store:
        store.add(nodes(vectors[:1000]))
        right = search(store, vectors[0], 1).ids
        stop = threading.Event()
        errors: list[BaseException] = []

        def look() -> None:
            try:
                while not stop.is_set():
                    hits = search(store, vectors[0], 100)
                    assert hits.ids[:1] == right
                    assert len(set(hits.ids)) == 100
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        for start in range(1000, 2000, 100):
            store.add(nodes(vectors[start : start + 100], start))
            store.delete_nodes([f"n{start - 990:05d}"])
        stop.set()
        for thread in threads:
            thread.join()
        assert not errors


def test_faiss_keeps_the_users_number_of_threads() -> None:
    import faiss

    before = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(2)
        with one_thread():
            assert faiss.omp_get_max_threads() == 1
        assert faiss.omp_get_max_threads() == 2
    finally:
        faiss.omp_set_num_threads(before)


def test_the_error_of_the_codes_stays_in_its_bound() -> None:
    rng = np.random.default_rng(8)
    vectors = unit(uniform(rng, 500).astype(np.float32))
    span = Range.around(vectors.min(axis=0), vectors.max(axis=0), 500)
    codes = QuantizedVectors.flat(span)
    codes.add(vectors)
    query = unit(uniform(rng, 1).astype(np.float32))[0]
    asked = codes.prepare(query)
    positions, rough = codes.search(asked, 500, None, every=True)
    errors = np.abs(rough - vectors[positions] @ query)
    assert len(errors) == 500
    assert errors.max() <= asked.error < 0.1
    # The bound is no wild guess either.
    assert errors.max() >= asked.error / 6


def test_a_gate_lets_readers_share_and_writers_alone() -> None:
    gate = Gate()
    order: list[str] = []
    with gate.reading(), gate.reading():
        writer = threading.Thread(target=lambda: _enter(gate, order))
        writer.start()
        writer.join(0.05)
        assert order == []
    writer.join()
    assert order == ["written"]
    with gate.reading():
        pass


def _enter(gate: Gate, order: list[str]) -> None:
    with gate.writing():
        order.append("written")
