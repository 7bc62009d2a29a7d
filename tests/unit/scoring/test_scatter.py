from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from llama_index_hybrid_pack.errors import RerankError
from llama_index_hybrid_pack.scoring.scatter import scatter_scores, unique_texts


def test_case_b22_each_document_gets_its_own_score(cases_dir: Path) -> None:
    case = json.loads((cases_dir / "B22.json").read_text(encoding="utf-8"))
    docs = case["input"]["docs"]
    sent = unique_texts(docs)
    replies = [(reply["index"], reply["score"]) for reply in case["input"]["service_reply"]]
    scores = dict(zip(docs, scatter_scores(replies, sent.positions), strict=True))
    assert scores == case["expected"]["scores"]
    assert len(scatter_scores(replies, sent.positions)) == len(docs)


def test_any_order_of_the_answer_gives_the_same(cases_dir: Path) -> None:
    """The whole kind of B22: repeated, blank and distinct texts, answered in every order."""
    texts = ["b", " ", "a", "b", "", "c", "a"]
    sent = unique_texts(texts)
    assert sent.texts == ["b", "a", "c"]
    truth = {"a": 0.5, "b": -1.0, "c": 7.0}
    want = [truth.get(text) for text in texts]
    for replies in itertools.permutations(enumerate(truth[text] for text in sent.texts)):
        assert scatter_scores(replies, sent.positions) == want


def test_texts_that_differ_in_space_or_case_are_different_texts() -> None:
    assert unique_texts(["a", "a ", "A"]).texts == ["a", "a ", "A"]


def test_a_text_that_the_answer_leaves_out_has_no_score() -> None:
    assert scatter_scores([(1, 0.5)], [0, 1, 0]) == [None, 0.5, None]


@pytest.mark.parametrize("score", [float("nan"), float("inf"), float("-inf")])
def test_a_score_that_is_not_finite_is_no_score(score: float) -> None:
    assert scatter_scores([(0, score), (1, 1.0)], [0, 1]) == [None, 1.0]


@pytest.mark.parametrize("index", [-1, 2, 1.0, True, "0", None])
def test_an_index_outside_of_what_was_sent_is_refused(index: object) -> None:
    with pytest.raises(RerankError, match="0 to 1"):
        scatter_scores([(index, 0.5)], [0, 1])


def test_two_answers_for_one_text_are_refused() -> None:
    with pytest.raises(RerankError, match="twice for text 0"):
        scatter_scores([(0, 0.5), (0, 0.6)], [0, 1])


def test_nothing_sent_nothing_answered() -> None:
    assert unique_texts([]).texts == []
    assert scatter_scores([], []) == []
    assert scatter_scores([], [None, None]) == [None, None]
