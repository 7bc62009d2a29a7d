"""The stage record: written without touching the input, hidden from embedding and LLM text."""

from __future__ import annotations

from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode

from llama_index_hybrid_pack.metadata import (
    STAGES_KEY,
    ScoreScale,
    StageScore,
    annotate,
    current_scale,
    stage_scores,
)


def hit() -> NodeWithScore:
    return NodeWithScore(node=TextNode(id_="n", text="body", metadata={"a": 1}), score=0.5)


def test_annotating_leaves_the_input_alone() -> None:
    before = hit()
    after = annotate(before, "dense", score=0.9, rank=1, scale=ScoreScale.COSINE)
    assert before == hit()
    assert before.node.metadata == {"a": 1}
    assert after.score == 0.9
    assert after.node.node_id == "n"


def test_the_record_keeps_every_stage_in_order_and_the_last_scale_counts() -> None:
    first = annotate(hit(), "bm25", score=7.0, rank=2, scale=ScoreScale.BM25)
    last = annotate(first, "fusion", score=0.03, rank=1, scale=ScoreScale.RANK)
    assert list(stage_scores(last.node)) == ["bm25", "fusion"]
    assert stage_scores(first.node) == {"bm25": StageScore(score=7.0, rank=2, scale="bm25")}
    assert current_scale(last.node) is ScoreScale.RANK
    assert current_scale(hit().node) is None


def test_a_stage_that_ran_twice_stands_last() -> None:
    once = annotate(hit(), "fusion", score=1.0, rank=1, scale=ScoreScale.RANK)
    twice = annotate(once, "mmr", score=0.2, rank=1, scale=ScoreScale.FUSED)
    again = annotate(twice, "fusion", score=0.5, rank=1, scale=ScoreScale.FUSED)
    assert list(stage_scores(again.node)) == ["mmr", "fusion"]
    assert current_scale(again.node) is ScoreScale.FUSED


def test_extra_entries_stand_before_the_stage() -> None:
    extra = {"bm25": StageScore(score=None, rank=3, scale="bm25")}
    fused = annotate(hit(), "fusion", score=0.1, rank=1, scale=ScoreScale.RANK, extra=extra)
    assert list(stage_scores(fused.node)) == ["bm25", "fusion"]


def test_the_record_stays_out_of_embedding_and_llm_text() -> None:
    node = annotate(hit(), "dense", score=0.9, rank=1, scale=ScoreScale.COSINE).node
    assert STAGES_KEY in node.metadata
    for mode in (MetadataMode.EMBED, MetadataMode.LLM):
        assert STAGES_KEY not in node.get_content(metadata_mode=mode)
        assert node.get_content(metadata_mode=mode) == hit().node.get_content(metadata_mode=mode)
