"""What every reranker does with its scores, with scores that the test writes down."""

from __future__ import annotations

import logging

import pytest
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
from llama_index.core.schema import MetadataMode, QueryBundle

from llama_index_hybrid_pack.errors import (
    ConfigError,
    MissingExtraError,
    ModelNotFoundError,
    RerankError,
)
from llama_index_hybrid_pack.metadata import STAGES_KEY, ScoreScale, current_scale, stage_scores
from tests.unit.ranking.scripted import ScriptedReranker, hit, ids, recorded_events, scaled

SCORES = {"alpha": -3.0, "beta": 8.0, "gamma": 1.0}


def three() -> list:
    return [hit("a", "alpha", 0.9), hit("b", "beta", 0.5), hit("c", "gamma", 0.1)]


def bare(**options: object) -> ScriptedReranker:
    return ScriptedReranker(**{"scores": SCORES, "metadata_mode": MetadataMode.NONE, **options})


def test_weight_one_replaces_score_order_and_scale() -> None:
    out = bare(blend_weight=1).postprocess_nodes(three(), query_str="q")
    assert [(h.node.node_id, h.score) for h in out] == [("b", 8.0), ("c", 1.0), ("a", -3.0)]
    assert [current_scale(h.node) for h in out] == [ScoreScale.LOGIT] * 3
    assert stage_scores(out[0].node)["scripted"] == {"score": 8.0, "rank": 1, "scale": "logit"}


def test_weight_zero_keeps_the_order_before_and_records_the_rerankers_score() -> None:
    out = bare(blend_weight=0).postprocess_nodes(three(), query_str="q")
    assert ids(out) == ["a", "b", "c"]
    assert [stage_scores(h.node)["scripted"]["score"] for h in out] == [-3.0, 8.0, 1.0]
    assert [stage_scores(h.node)["scripted"]["rank"] for h in out] == [3, 1, 2]


def test_a_blend_has_the_fused_scale_and_both_scores_stay_visible() -> None:
    hits = [
        scaled("a", 0.9, ScoreScale.RANK, "fusion"),
        scaled("b", 0.8, ScoreScale.RANK, "fusion"),
    ]
    reranker = ScriptedReranker(
        scores={"a": 0.0, "b": 5.0},
        blend_weight=0.75,
        blend_normalization="min_max",
        metadata_mode="none",
    )
    out = reranker.postprocess_nodes(hits, query_str="q")
    assert [(h.node.node_id, h.score) for h in out] == [("b", 0.75), ("a", 0.25)]
    assert current_scale(out[0].node) is ScoreScale.FUSED
    assert stage_scores(out[0].node) == {
        "fusion": {"score": 0.8, "rank": 1, "scale": "rank"},
        "scripted": {"score": 5.0, "rank": 1, "scale": "logit"},
        "scripted_blend": {"score": 0.75, "rank": 1, "scale": "fused"},
    }


def test_equal_scores_are_ordered_by_node_id() -> None:
    hits = [hit("z", "beta", 0.5), hit("m", "beta", 0.5), hit("a", "beta", 0.5)]
    assert ids(bare().postprocess_nodes(hits, query_str="q")) == ["a", "m", "z"]


def test_hits_without_a_first_score_are_ranked_by_the_reranker_all_the_same() -> None:
    hits = [hit("a", "alpha"), hit("b", "beta"), hit("c", "gamma")]
    assert ids(bare(blend_weight=1).postprocess_nodes(hits, query_str="q")) == ["b", "c", "a"]
    assert ids(bare(blend_weight=0).postprocess_nodes(hits, query_str="q")) == ["a", "b", "c"]
    mixed = [hit("a", "alpha", 0.9), hit("b", "beta"), hit("c", "gamma", 0.1)]
    assert ids(bare(blend_weight=0.9).postprocess_nodes(mixed, query_str="q"))[0] == "b"


def test_the_original_question_is_judged_not_the_rewrite() -> None:
    reranker = bare()
    bundle = QueryBundle(query_str="the question", custom_embedding_strs=["a hypothetical answer"])
    reranker.postprocess_nodes(three(), query_bundle=bundle)
    assert reranker.calls[0][0] == "the question"


def test_equal_texts_are_scored_once_and_each_gets_the_score() -> None:
    reranker = bare(top_n=None, blend_weight=1)
    hits = [hit("a", "beta"), hit("b", "alpha"), hit("c", "beta"), hit("d", "beta")]
    out = reranker.postprocess_nodes(hits, query_str="q")
    assert reranker.calls == [("q", ["beta", "alpha"])]
    assert [(h.node.node_id, h.score) for h in out] == [
        ("a", 8.0),
        ("c", 8.0),
        ("d", 8.0),
        ("b", -3.0),
    ]


def test_blank_texts_are_not_sent_and_rank_last() -> None:
    reranker = bare(blend_weight=1)
    hits = [hit("blank", "  \n", 0.9), hit("a", "alpha", 0.1)]
    with recorded_events() as events:
        out = reranker.postprocess_nodes(hits, query_str="q")
    assert reranker.calls == [("q", ["alpha"])]
    assert [(h.node.node_id, h.score) for h in out] == [("a", -3.0), ("blank", None)]
    assert not [e for e in events if e.class_name() == "HybridPackFallbackEvent"]
    only_blank = reranker.postprocess_nodes([hit("x", "", 0.2), hit("w", " ", 0.1)], query_str="q")
    assert ids(only_blank) == ["x", "w"]
    assert len(reranker.calls) == 1


def test_metadata_mode_says_what_stands_before_the_judged_text() -> None:
    node = {
        "metadata": {"heading": "Billing", "secret": "internal"},
        "excluded_embed_metadata_keys": ["secret"],
    }
    expected = {
        MetadataMode.EMBED: "heading: Billing\n\nalpha",
        MetadataMode.NONE: "alpha",
        MetadataMode.LLM: "heading: Billing\nsecret: internal\n\nalpha",
        MetadataMode.ALL: "heading: Billing\nsecret: internal\n\nalpha",
    }
    for mode, text in expected.items():
        reranker = ScriptedReranker(scores={text: 1.0}, metadata_mode=mode, on_error="raise")
        first = reranker.postprocess_nodes([hit("a", "alpha", 0.5, **node)], query_str="q")
        assert reranker.calls == [("q", [text])]
        # The record of the first run is never part of the text, even with mode "all".
        assert STAGES_KEY in first[0].node.metadata
        reranker.postprocess_nodes(first, query_str="q")
        assert reranker.calls[1] == ("q", [text])


def test_a_stage_record_without_its_exclusion_is_not_judged_either() -> None:
    first = bare(top_n=1).postprocess_nodes(three(), query_str="q")
    first[0].node.excluded_embed_metadata_keys = []
    reranker = bare(metadata_mode=MetadataMode.EMBED)
    reranker.postprocess_nodes(first, query_str="q")
    assert reranker.calls == [("q", ["beta"])]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_a_score_that_is_not_finite_ranks_its_hit_last_and_is_recorded(
    bad: float, weight: float
) -> None:
    reranker = bare(scores={**SCORES, "alpha": bad}, blend_weight=weight)
    with recorded_events() as events:
        out = reranker.postprocess_nodes(three(), query_str="q")
    assert ids(out)[-1] == "a"
    assert out[-1].score is None
    (event,) = [e for e in events if e.class_name() == "HybridPackFallbackEvent"]
    assert "1 of 3" in event.message
    with pytest.raises(RerankError, match="1 of 3"):
        bare(scores={**SCORES, "alpha": bad}, on_error="raise").postprocess_nodes(
            three(), query_str="q"
        )


def test_when_every_score_fails_the_order_before_stands() -> None:
    out = bare(scores=dict.fromkeys(SCORES, float("nan")), top_n=2).postprocess_nodes(
        three(), query_str="q"
    )
    assert [(h.node.node_id, h.score) for h in out] == [("a", 0.9), ("b", 0.5)]


def test_a_failing_model_leaves_the_order_before_cut_to_top_n_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reranker = bare(error=RuntimeError("out of memory at 'alpha'"), top_n=2)
    given = three()
    with recorded_events() as events, caplog.at_level(logging.WARNING):
        out = reranker.postprocess_nodes(given, query_str="q")
    assert [(h.node.node_id, h.score) for h in out] == [("a", 0.9), ("b", 0.5)]
    assert out[0] is not given[0]
    (event,) = [e for e in events if e.class_name() == "HybridPackFallbackEvent"]
    assert (event.stage, event.error_type) == ("scripted", "RuntimeError")
    assert "scripted failed (RuntimeError)" in caplog.text
    assert "alpha" not in caplog.text  # logs carry no document text


def test_on_error_raise_raises_with_the_cause() -> None:
    reranker = bare(error=RuntimeError("out of memory"), on_error="raise")
    with pytest.raises(RerankError, match="RuntimeError: out of memory") as caught:
        reranker.postprocess_nodes(three(), query_str="q")
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize("error", [ConfigError, MissingExtraError, ModelNotFoundError])
def test_a_wrong_setup_is_raised_even_under_fallback(error: type[Exception]) -> None:
    with pytest.raises(error, match="no such model"):
        bare(error=error("no such model")).postprocess_nodes(three(), query_str="q")


def test_a_model_that_answers_for_too_few_texts_is_a_failure() -> None:
    class Short(ScriptedReranker):
        def score_texts(self, query: str, texts: list[str]) -> list[float]:
            return [1.0]

    with pytest.raises(RerankError, match="1 scores for 3 texts"):
        Short(on_error="raise").postprocess_nodes(three(), query_str="q")
    assert ids(Short().postprocess_nodes(three(), query_str="q")) == ["a", "b", "c"]


def test_hits_beyond_max_candidates_follow_in_their_order_without_a_score() -> None:
    reranker = bare(max_candidates=2, top_n=None, blend_weight=1)
    hits = [*three(), hit("z", "beta", 0.09), hit("y", "beta", 0.08)]
    out = reranker.postprocess_nodes(hits, query_str="q")
    assert ids(out) == ["b", "a", "c", "z", "y"]
    assert [h.score for h in out] == [8.0, -3.0, None, None, None]
    assert reranker.calls == [("q", ["alpha", "beta"])]
    assert stage_scores(out[2].node)["scripted"] == {"score": None, "rank": 3, "scale": "logit"}


@pytest.mark.parametrize("top_n", [1, 2, 3, 50])
def test_top_n_cuts_and_none_keeps_all(top_n: int) -> None:
    assert len(bare(top_n=top_n).postprocess_nodes(three(), query_str="q")) == min(top_n, 3)
    assert len(bare(top_n=None).postprocess_nodes(three(), query_str="q")) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"top_n": 0},
        {"top_n": -1},
        {"max_candidates": 0},
        {"blend_weight": 1.5},
        {"blend_weight": float("nan")},
        {"blend_normalization": "softmax"},
        {"on_error": "ignore"},
        {"top_k": 3},
    ],
)
def test_wrong_options_are_named_in_one_config_error(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        bare(**options)


def test_an_option_is_checked_when_it_is_changed_later() -> None:
    reranker = bare()
    reranker.top_n = 2
    assert len(reranker.postprocess_nodes(three(), query_str="q")) == 2
    with pytest.raises(ValueError, match="top_n"):
        reranker.top_n = 0


def test_events_of_llamaindex_and_of_ours_are_emitted() -> None:
    debug = LlamaDebugHandler(print_trace_on_end=False)
    reranker = bare(top_n=2)
    reranker.callback_manager = CallbackManager([debug])
    with recorded_events() as events:
        out = reranker.postprocess_nodes(three(), query_str="q")
    names = [e.class_name() for e in events]
    assert names.index("ReRankStartEvent") < names.index("HybridPackStageEndEvent")
    assert names.index("HybridPackStageEndEvent") < names.index("ReRankEndEvent")
    start = events[names.index("ReRankStartEvent")]
    assert (start.query, start.top_n, start.model_name, len(start.nodes)) == ("q", 2, "script", 3)
    ours = events[names.index("HybridPackStageEndEvent")]
    assert (ours.stage, ours.n_in, ours.n_out) == ("scripted", 3, 2)
    assert events[names.index("ReRankEndEvent")].nodes == out
    ((begin, end),) = debug.get_event_pairs(CBEventType.RERANKING)
    assert begin.payload["query_str"] == "q"
    assert end.payload["nodes"] == out
