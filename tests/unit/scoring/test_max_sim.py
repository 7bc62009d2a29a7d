from __future__ import annotations

import numpy as np
import pytest

from llama_index_hybrid_pack.errors import EmbeddingError
from llama_index_hybrid_pack.scoring.max_sim import max_sim


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_equal_to_the_formula_written_as_loops() -> None:
    rng = np.random.default_rng(0)
    query = unit(rng.normal(size=(7, 24)))
    passages = [unit(rng.normal(size=(n, 24))) for n in (1, 30, 2, 250, 3)]
    want = [np.mean([max(float(q @ t) for t in passage) for q in query]) for passage in passages]
    assert max_sim(query, passages) == pytest.approx(want, abs=1e-6)


def test_a_passage_that_holds_the_query_scores_one() -> None:
    query = unit(np.random.default_rng(1).normal(size=(3, 8)))
    more = np.concatenate([-query, query])
    assert max_sim(query, [more]) == pytest.approx([1.0], abs=1e-6)


def test_order_of_tokens_and_of_passages_does_not_matter() -> None:
    rng = np.random.default_rng(2)
    query = unit(rng.normal(size=(4, 8)))
    passages = [unit(rng.normal(size=(n, 8))) for n in (5, 2, 9)]
    want = max_sim(query, passages)
    assert max_sim(query[::-1], [passage[::-1] for passage in passages[::-1]]) == pytest.approx(
        want[::-1], abs=1e-6
    )


def test_a_passage_without_tokens_has_no_score_and_moves_no_other() -> None:
    query = unit(np.random.default_rng(3).normal(size=(2, 4)))
    empty = np.empty((0, 4), dtype=np.float32)
    scores = max_sim(query, [empty, query, empty])
    assert np.isnan(scores[[0, 2]]).all()
    assert scores[1] == pytest.approx(1.0, abs=1e-6)
    assert max_sim(query, []).size == 0
    assert np.isnan(max_sim(query, [empty])).all()


def test_vectors_of_another_model_or_none_are_refused() -> None:
    query = np.ones((2, 4), dtype=np.float32)
    with pytest.raises(EmbeddingError, match="4 dimensions and those of the passages 3"):
        max_sim(query, [np.ones((2, 3), dtype=np.float32)])
    with pytest.raises(EmbeddingError, match="tokens"):
        max_sim(query[:0], [query])
