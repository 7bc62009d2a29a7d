"""The core of the fusion takes any number of lists, also several of one leg."""

from __future__ import annotations

import pytest

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.metadata import ScoreScale
from llama_index_hybrid_pack.retrieval.ranked_list import (
    FusionSettings,
    RankedList,
    choose_nodes,
    fuse,
    leg_scores,
)
from tests.unit.retrieval.static import hit

RRF = FusionSettings(mode="rrf")


def test_several_queries_of_one_leg_are_lists_of_their_own() -> None:
    lists = [
        RankedList("dense", ["a", "b"], [0.9, 0.5]),
        RankedList("dense", ["b", "c"], [0.8, 0.1], weight=0.5),
        RankedList("bm25", ["b"], [7.0]),
    ]
    assert dict(fuse(lists, RRF)) == pytest.approx(
        {"b": 1 / 62 + 0.5 / 61 + 1 / 61, "a": 1 / 61, "c": 0.5 / 62}
    )


@pytest.mark.parametrize("turn", [1, -1])
def test_of_several_lists_of_one_leg_the_best_rank_is_recorded(turn) -> None:
    lists = [RankedList("dense", ["a", "b"], [0.9, 0.5]), RankedList("dense", ["b"], [0.8])]
    record = leg_scores(lists[::turn], ["a", "b"])
    assert record["b"] == {"dense": {"score": 0.8, "rank": 1, "scale": "unknown"}}
    assert record["a"]["dense"]["rank"] == 1


def test_theoretical_bounds_come_from_the_scale_of_each_list() -> None:
    lists = [
        RankedList("bm25", ["a", "b"], [8.0, 2.0], ScoreScale.BM25),
        RankedList("dense", ["b", "a"], [0.6, -0.2], ScoreScale.COSINE),
    ]
    fused = dict(fuse(lists, FusionSettings(normalization="theoretical")))
    assert fused == pytest.approx({"a": 0.75, "b": 0.625})
    unknown = [RankedList("other", ["a"], [1.0])]
    with pytest.raises(ConfigError, match="lowest score there can be"):
        fuse(unknown, FusionSettings(normalization="theoretical"))


def test_nodes_are_chosen_for_the_asked_ids_that_some_leg_built() -> None:
    nodes = {"a": hit("a").node, "b": hit("b").node}
    lists = [RankedList("x", ["a", "b"], [1, 1], nodes=nodes), RankedList("store", ["c"], [1])]
    assert list(choose_nodes(lists, ["b", "c"])) == ["b"]


def test_no_lists_give_nothing() -> None:
    assert fuse([], RRF) == []
    assert leg_scores([], ["a"]) == {"a": {}}
