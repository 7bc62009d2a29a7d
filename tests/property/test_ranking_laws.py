"""Laws that hold for any hits: nothing is lost or invented, orders agree, scales do not matter."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index_hybrid_pack.metadata import ScoreScale, annotate, stage_scores
from llama_index_hybrid_pack.ranking.chain import PostprocessorChain
from llama_index_hybrid_pack.ranking.mmr import MMRPostprocessor
from llama_index_hybrid_pack.ranking.threshold import ScoreThreshold
from llama_index_hybrid_pack.scoring.blending import blend_scores
from llama_index_hybrid_pack.scoring.max_sim import max_sim
from llama_index_hybrid_pack.scoring.probability import logit, sigmoid
from llama_index_hybrid_pack.scoring.scatter import scatter_scores, unique_texts
from tests.unit.ranking.scripted import ScriptedReranker, ids

# Thousandths: two scores are either equal or clearly apart.
score = st.integers(-5000, 5000).map(lambda x: x / 1000)
maybe_score = st.none() | score
words = st.sampled_from(["alpha", "beta", "gamma", "delta", ""])


@st.composite
def hits(draw: st.DrawFn, max_size: int = 12) -> list[NodeWithScore]:
    names = draw(
        st.lists(st.text("abcdef", min_size=1, max_size=3), unique=True, max_size=max_size)
    )
    return [
        NodeWithScore(node=TextNode(id_=name, text=draw(words)), score=draw(maybe_score))
        for name in names
    ]


@st.composite
def rerankers(draw: st.DrawFn) -> ScriptedReranker:
    values = {word: draw(score | st.just(math.nan)) for word in ("alpha", "beta", "gamma", "delta")}
    return ScriptedReranker(
        scores=values,
        metadata_mode="none",
        top_n=None,
        max_candidates=draw(st.none() | st.integers(1, 12)),
        blend_weight=draw(st.sampled_from([0.0, 0.3, 0.5, 1.0])),
        blend_normalization=draw(st.sampled_from(["z_score", "min_max"])),
    )


@given(hits(), rerankers())
def test_a_reranker_returns_every_hit_once_best_first_and_unscored_last(
    given_hits: list[NodeWithScore], reranker: ScriptedReranker
) -> None:
    out = reranker.postprocess_nodes(given_hits, query_str="q")
    assert sorted(ids(out)) == sorted(ids(given_hits))
    if not out or "scripted" not in stage_scores(out[0].node):
        # Every score failed, or there was none to give: the order before stands.
        assert ids(out) == ids(given_hits)
        return
    keys = [(hit.score is None, -(hit.score or 0.0)) for hit in out]
    assert keys == sorted(keys)
    for a, b in pairwise(out):
        if a.score is not None and a.score == b.score:
            assert a.node.node_id < b.node.node_id


@given(hits(), rerankers(), st.integers(1, 15))
def test_fewer_hits_are_a_prefix_of_more(
    given_hits: list[NodeWithScore], reranker: ScriptedReranker, top_n: int
) -> None:
    everything = reranker.postprocess_nodes(given_hits, query_str="q")
    reranker.top_n = top_n
    assert reranker.postprocess_nodes(given_hits, query_str="q") == everything[:top_n]


@given(hits(), rerankers())
def test_equal_texts_have_equal_scores_of_the_reranker(
    given_hits: list[NodeWithScore], reranker: ScriptedReranker
) -> None:
    reranker.max_candidates = None
    found: dict[str, float | None] = {}
    for hit in reranker.postprocess_nodes(given_hits, query_str="q"):
        entry = stage_scores(hit.node).get("scripted")
        if entry is not None:
            assert found.setdefault(hit.node.text, entry["score"]) == entry["score"]


@st.composite
def two_lists(draw: st.DrawFn) -> tuple[list[float | None], list[float | None]]:
    n = draw(st.integers(1, 15))
    lists = st.lists(maybe_score, min_size=n, max_size=n)
    return draw(lists), draw(lists)


weights = st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])
methods = st.sampled_from(["z_score", "min_max"])


@given(two_lists(), weights, methods, st.floats(0.001, 1000), st.floats(-100, 100))
def test_a_blend_does_not_depend_on_unit_and_zero_of_the_scores(
    lists: tuple[list[float | None], list[float | None]],
    weight: float,
    method: str,
    unit: float,
    zero: float,
) -> None:
    first, second = lists
    want = blend_scores(first, second, weight=weight, normalization=method)
    moved = [None if x is None else x * unit + zero for x in first]
    if all(x is None for x in first):
        moved = first
    got = blend_scores(moved, second, weight=weight, normalization=method)
    assert [x is None for x in got] == [x is None for x in second] == [x is None for x in want]
    for a, b in zip(got, want, strict=True):
        assert a is b is None or a == pytest.approx(b, abs=1e-6)


@given(two_lists(), methods, st.randoms(use_true_random=False))
def test_a_blend_does_not_depend_on_the_order_of_scored_candidates(
    lists: tuple[list[float | None], list[float | None]], method: str, random: object
) -> None:
    first = [0.0 if x is None else x for x in lists[0]]  # without scores the order counts
    second = lists[1]
    places = list(range(len(first)))
    random.shuffle(places)  # type: ignore[attr-defined]
    want = blend_scores(first, second, weight=0.4, normalization=method)
    got = blend_scores(
        [first[i] for i in places],
        [second[i] for i in places],
        weight=0.4,
        normalization=method,
    )
    for i, x in zip(places, got, strict=True):
        assert x is want[i] is None or x == pytest.approx(want[i], abs=1e-9)


@given(st.lists(words, max_size=12), st.randoms(use_true_random=False))
def test_scores_find_their_texts_whatever_the_order_of_the_answer(
    texts: list[str], random: object
) -> None:
    sent = unique_texts(texts)
    truth = {text: float(i) for i, text in enumerate(sent.texts)}
    replies = list(enumerate(truth[text] for text in sent.texts))
    random.shuffle(replies)  # type: ignore[attr-defined]
    assert scatter_scores(replies, sent.positions) == [truth.get(text) for text in texts]


@given(st.lists(st.integers(-40, 40).map(lambda x: x / 2), max_size=10), st.floats(0.001, 0.999))
def test_a_probability_cut_off_and_its_logit_keep_the_same_hits(
    logits: list[float], cutoff: float
) -> None:
    given_hits = [
        annotate(
            NodeWithScore(node=TextNode(id_=str(i))),
            "cross_encoder",
            score=x,
            rank=i + 1,
            scale=ScoreScale.LOGIT,
        )
        for i, x in enumerate(logits)
    ]
    by_probability = ScoreThreshold(cutoff=cutoff, scale="probability")
    by_logit = ScoreThreshold(cutoff=logit(cutoff), scale="logit")
    kept = ids(by_probability.postprocess_nodes(given_hits))
    assert kept == ids(by_logit.postprocess_nodes(given_hits))
    assert kept == [str(i) for i, x in enumerate(logits) if sigmoid(x) >= cutoff]


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 15), st.integers(1, 15), st.floats(0, 1))
def test_mmr_picks_are_a_prefix_and_its_scores_keep_the_order(
    seed: int, n: int, top_n: int, lambda_mult: float
) -> None:
    rng = np.random.default_rng(seed)
    given_hits = [
        NodeWithScore(
            node=TextNode(id_=str(i), embedding=rng.normal(size=4).tolist()),
            score=float(rng.random()),
        )
        for i in range(n)
    ]
    everything = MMRPostprocessor(lambda_mult=lambda_mult, top_n=None).postprocess_nodes(given_hits)
    assert sorted(ids(everything)) == sorted(ids(given_hits))
    assert sorted(everything, key=lambda hit: -hit.score) == everything
    some = MMRPostprocessor(lambda_mult=lambda_mult, top_n=top_n).postprocess_nodes(given_hits)
    assert some == everything[:top_n]


@given(hits(), rerankers(), rerankers())
def test_a_chain_is_its_steps_one_after_the_other(
    given_hits: list[NodeWithScore], first: ScriptedReranker, second: ScriptedReranker
) -> None:
    want = second.postprocess_nodes(
        first.postprocess_nodes(given_hits, query_str="q"), query_str="q"
    )
    chain = PostprocessorChain(steps=[first, second])
    assert chain.postprocess_nodes(given_hits, query_str="q") == want


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.lists(st.integers(1, 20), min_size=1))
def test_max_sim_lies_between_minus_one_and_one_and_grows_with_the_passage(
    seed: int, query_tokens: int, lengths: list[int]
) -> None:
    rng = np.random.default_rng(seed)

    def tokens(n: int) -> np.ndarray:
        rows = rng.normal(size=(n, 8))
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    query = tokens(query_tokens)
    passages = [tokens(n) for n in lengths]
    scores = max_sim(query, passages)
    assert np.all(np.abs(scores) <= 1 + 1e-5)
    longer = max_sim(query, [np.concatenate([passage, tokens(3)]) for passage in passages])
    assert np.all(longer >= scores - 1e-6)
