from __future__ import annotations

import json
from pathlib import Path

import pytest
from llama_index.core.schema import QueryBundle

from llama_index_hybrid_pack.errors import ConfigError, ScoreScaleError
from llama_index_hybrid_pack.metadata import ScoreScale, current_scale, stage_scores
from llama_index_hybrid_pack.ranking.threshold import ScoreThreshold
from tests.unit.ranking.scripted import ScriptedReranker, hit, ids, recorded_events, scaled


def logits(values: list[float | None]) -> list:
    return [scaled(f"h{i}", x, ScoreScale.LOGIT, "cross_encoder") for i, x in enumerate(values)]


def test_case_b23_a_probability_cut_off_is_mapped_onto_logits(cases_dir: Path) -> None:
    case = json.loads((cases_dir / "B23.json").read_text(encoding="utf-8"))
    threshold = ScoreThreshold(cutoff=case["input"]["cutoff"], scale="probability")
    out = threshold.postprocess_nodes(logits(case["input"]["logits"]))
    assert [h.score for h in out] == case["expected"]["kept"]
    assert {current_scale(h.node) for h in out} == {ScoreScale.LOGIT}


def test_a_logit_cut_off_is_mapped_onto_probabilities() -> None:
    hits = [scaled(str(p), p, ScoreScale.PROBABILITY, "ce") for p in (0.1, 0.49, 0.5, 0.99)]
    out = ScoreThreshold(cutoff=0.0, scale="logit").postprocess_nodes(hits)
    assert ids(out) == ["0.5", "0.99"]


def test_mapping_is_exact_where_a_sigmoid_saturates() -> None:
    hits = logits([30.0, 36.0, 40.0])
    out = ScoreThreshold(cutoff=1 - 1e-15, scale="probability").postprocess_nodes(hits)
    assert [h.score for h in out] == [36.0, 40.0]
    assert ScoreThreshold(cutoff=1.0, scale="probability").postprocess_nodes(hits) == []
    everything = ScoreThreshold(cutoff=0.0, scale="probability").postprocess_nodes(
        logits([-900.0, 3.0])
    )
    assert len(everything) == 2


@pytest.mark.parametrize("scale", ["cosine", "logit", "probability", "rank", "fused", "bm25"])
def test_scores_of_the_cut_offs_own_scale_are_compared_as_they_are(scale: str) -> None:
    hits = [scaled(str(x), x, ScoreScale(scale), "stage") for x in (0.9, 0.3, 0.0, 0.2)]
    out = ScoreThreshold(cutoff=0.2, scale=scale).postprocess_nodes(hits)
    assert ids(out) == ["0.9", "0.3", "0.2"]
    assert ids(ScoreThreshold(cutoff=0, scale=scale).postprocess_nodes(hits)) == ids(hits)


@pytest.mark.parametrize("score", [0.0325, 0.9, 12.0])
@pytest.mark.parametrize("found", ["rank", "fused", "bm25"])
@pytest.mark.parametrize("wanted", ["probability", "cosine", "logit"])
def test_case_b26_scores_that_carry_no_confidence_are_refused(
    score: float, found: str, wanted: str
) -> None:
    hits = [scaled("a", score, ScoreScale(found), "fusion")]
    with pytest.raises(ScoreScaleError, match=f"is a {wanted}.*has a {found} score") as caught:
        ScoreThreshold(cutoff=0.5, scale=wanted).postprocess_nodes(hits)
    assert "after a reranker" in str(caught.value)


def test_a_refusal_names_the_stage_that_would_fit() -> None:
    reranker = ScriptedReranker(scores={"a": 4.0}, metadata_mode="none")
    hits = reranker.postprocess_nodes([hit("a", "a", 0.03)], query_str="q")
    with pytest.raises(ScoreScaleError, match="stage='scripted'"):
        ScoreThreshold(cutoff=0.5, scale="probability").postprocess_nodes(hits)
    out = ScoreThreshold(cutoff=0.5, scale="probability", stage="scripted").postprocess_nodes(hits)
    assert ids(out) == ["a"]
    assert out[0].score == hits[0].score
    assert current_scale(out[0].node) is ScoreScale.FUSED
    dropped = ScoreThreshold(cutoff=4.5, scale="logit", stage="scripted").postprocess_nodes(hits)
    assert dropped == []


def test_case_b26_unscored_hits_are_kept_or_dropped_as_told(cases_dir: Path) -> None:
    case = json.loads((cases_dir / "B26.json").read_text(encoding="utf-8"))["input"]
    hits = [scaled(name, score, ScoreScale.COSINE, "dense") for name, score in case["hits"]]
    assert ids(ScoreThreshold(cutoff=case["cutoff"], scale="cosine").postprocess_nodes(hits)) == [
        "A",
        "B",
    ]
    strict = ScoreThreshold(cutoff=case["cutoff"], scale="cosine", unscored="drop")
    with recorded_events() as events:
        assert ids(strict.postprocess_nodes(hits)) == ["B"]
    (event,) = [e for e in events if e.class_name() == "HybridPackStageEndEvent"]
    assert (event.stage, event.n_in, event.n_out) == ("threshold", 2, 1)


def test_a_foreign_hit_without_a_score_is_unscored_too() -> None:
    out = ScoreThreshold(cutoff=0.5, scale="cosine").postprocess_nodes([hit("x", "x")])
    assert out[0].score is None
    nan = [hit("x", "x", float("nan"))]
    assert ScoreThreshold(cutoff=0.5, scale="cosine", unscored="drop").postprocess_nodes(nan) == []


def test_hits_that_never_reached_the_named_stage_are_unscored() -> None:
    hits = [*logits([3.0]), scaled("tail", 0.03, ScoreScale.RANK, "fusion")]
    keep = ScoreThreshold(cutoff=0.5, scale="probability", stage="cross_encoder")
    assert ids(keep.postprocess_nodes(hits)) == ["h0", "tail"]
    drop = ScoreThreshold(cutoff=0.5, scale="probability", stage="cross_encoder", unscored="drop")
    assert ids(drop.postprocess_nodes(hits)) == ["h0"]


def test_foreign_scores_need_a_declared_scale() -> None:
    hits = [hit("a", "a", 0.9), hit("b", "b", 0.2)]
    with pytest.raises(ScoreScaleError, match="assume_scale"):
        ScoreThreshold(cutoff=0.5, scale="cosine").postprocess_nodes(hits)
    declared = ScoreThreshold(cutoff=0.5, scale="cosine", assume_scale="cosine")
    assert ids(declared.postprocess_nodes(hits)) == ["a"]
    with pytest.raises(ScoreScaleError, match="has a rank score"):
        ScoreThreshold(cutoff=0.5, scale="cosine", assume_scale="rank").postprocess_nodes(hits)


def test_a_score_that_someone_else_set_after_our_stage_is_foreign() -> None:
    """LlamaIndex's rerankers overwrite the score and leave our record as it was."""
    (ours,) = logits([4.0])
    ours.score = 0.7
    with pytest.raises(ScoreScaleError, match="does not declare"):
        ScoreThreshold(cutoff=0.5, scale="probability").postprocess_nodes([ours])
    assume = ScoreThreshold(cutoff=0.5, scale="probability", assume_scale="probability")
    out = assume.postprocess_nodes([ours])
    assert current_scale(out[0].node) is ScoreScale.PROBABILITY


def test_an_unknown_scale_is_undeclared() -> None:
    hits = [scaled("a", 0.9, ScoreScale.UNKNOWN, "foreign")]
    with pytest.raises(ScoreScaleError, match="assume_scale"):
        ScoreThreshold(cutoff=0.5, scale="cosine").postprocess_nodes(hits)
    for stage in (None, "foreign"):
        component = ScoreThreshold(cutoff=0.5, scale="cosine", assume_scale="cosine", stage=stage)
        assert ids(component.postprocess_nodes(hits)) == ["a"]


def test_order_scores_and_record_stay_and_a_question_is_not_needed() -> None:
    hits = logits([1.0, 9.0, 4.0])
    component = ScoreThreshold(cutoff=0.5, scale="probability")
    for bundle in (None, QueryBundle("q")):
        out = component.postprocess_nodes(hits, query_bundle=bundle)
        assert [h.score for h in out] == [1.0, 9.0, 4.0]
        assert list(stage_scores(out[2].node)) == ["cross_encoder", "threshold"]
        assert stage_scores(out[2].node)["threshold"]["rank"] == 3


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"cutoff": 1.2, "scale": "probability"}, r"\[0, 1\]"),
        ({"cutoff": -0.1, "scale": "probability"}, r"\[0, 1\]"),
        ({"cutoff": 70, "scale": "cosine"}, r"\[-1, 1\]"),
        ({"cutoff": float("nan"), "scale": "logit"}, "cutoff"),
        ({"cutoff": 0.5}, "scale"),
        ({"cutoff": 0.5, "scale": "percent"}, "scale"),
        ({"cutoff": 0.5, "scale": "unknown"}, "unknown scale"),
        ({"cutoff": 0.5, "scale": "cosine", "assume_scale": "unknown"}, "unknown scale"),
        ({"cutoff": 0.5, "scale": "cosine", "similarity_cutof": 1}, "similarity_cutof"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        ScoreThreshold(**options)
