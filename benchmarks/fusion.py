"""Fusion of two lists of 100 beside LlamaIndex's QueryFusionRetriever.

    python -m benchmarks.fusion             -> results/fusion.json
    python -m benchmarks.fusion --quick     few rounds, nothing written

CPU time of this process, contenders in turns, median. Three layers:

- ``ids``: the pure function, from ids and scores to fused ids and scores;
- ``hits``: from the legs' hits to 30 fused hits, each with the ranks and scores of its legs, which
  LlamaIndex does not keep;
- ``retrieve``: the whole call over two retrievers that answer at once, with LlamaIndex's events
  and spans, and with the threads that let slow legs run side by side.

LlamaIndex's methods write into their input, so each call gets hits of its own; what making those
costs is measured beside them and taken off. The two lists share half of their nodes; nodes have
120 words and five metadata fields.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from benchmarks.common import save, side_by_side
from llama_index_hybrid_pack.retrieval.fusion import HybridFusionRetriever
from llama_index_hybrid_pack.retrieval.legs import run_legs
from llama_index_hybrid_pack.scoring.fusion import reciprocal_rank_fusion, weighted_fusion

LENGTH = 100
TOP_K = 30
#: Name of a contender pair → LlamaIndex's mode and our options.
MODES = {
    "rrf": ("reciprocal_rerank", {"mode": "rrf"}),
    "min_max": ("relative_score", {"mode": "weighted", "normalization": "min_max"}),
    "dist_based": ("dist_based_score", {"mode": "weighted", "normalization": "dist_based"}),
}


def two_lists(seed: int = 0) -> list[list[NodeWithScore]]:
    """Two ranked lists of :data:`LENGTH` that share half of their nodes."""
    rng = random.Random(seed)
    words = [f"word{i}" for i in range(2000)]
    nodes = [
        TextNode(
            id_=f"{rng.getrandbits(128):032x}",
            text=" ".join(rng.choices(words, k=120)),
            metadata={f"field{i}": rng.choice(words) for i in range(5)},
        )
        for _ in range(LENGTH + LENGTH // 2)
    ]
    lists = []
    for found, top in ((nodes[:LENGTH], 30.0), (nodes[-LENGTH:], 1.0)):
        scores = sorted((rng.random() * top for _ in found), reverse=True)
        rng.shuffle(found)
        lists.append([NodeWithScore(node=n, score=s) for n, s in zip(found, scores, strict=True)])
    return lists


def fresh(hits: list[NodeWithScore]) -> list[NodeWithScore]:
    """New hits around the same nodes."""
    return [NodeWithScore(node=hit.node, score=hit.score) for hit in hits]


class Static(BaseRetriever):
    """Answers at once, with hits of its own for each call."""

    def __init__(self, hits: list[NodeWithScore]) -> None:
        super().__init__()
        self.hits = hits

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:  # noqa: ARG002
        return fresh(self.hits)


def repeated(call: Callable[[], object], times: int) -> Callable[[], object]:
    """One call is too short for the clock."""

    def run() -> None:
        for _ in range(times):
            call()

    return run


def methods(rounds: int, times: int) -> dict[str, dict[str, dict[str, float]]]:
    """Milliseconds of CPU for one fusion of what the legs have found already."""
    lists = two_lists()
    legs = [Static(hits) for hits in lists]
    ids = [[hit.node_id for hit in hits] for hits in lists]
    scored = [[(hit.node_id, hit.score) for hit in hits] for hits in lists]
    theirs = QueryFusionRetriever(legs, llm=MockLLM(), num_queries=1, use_async=False)

    def own_input() -> dict[tuple[str, int], list[NodeWithScore]]:
        return {("q", place): fresh(hits) for place, hits in enumerate(lists)}

    calls: dict[str, Callable[[], object]] = {
        "input": own_input,
        "rrf ids": lambda: reciprocal_rank_fusion(ids),
        "min_max ids": lambda: weighted_fusion(scored),
        "dist_based ids": lambda: weighted_fusion(scored, normalization="dist_based"),
        "rrf theirs": lambda: theirs._reciprocal_rerank_fusion(own_input())[:TOP_K],
        "min_max theirs": lambda: theirs._relative_score_fusion(own_input())[:TOP_K],
        "dist_based theirs": lambda: theirs._relative_score_fusion(own_input(), dist_based=True)[
            :TOP_K
        ],
    }
    for name, (_, options) in MODES.items():
        ours = HybridFusionRetriever(legs, similarity_top_k=TOP_K, **options)
        found = run_legs(ours.legs, QueryBundle("q"))
        calls[f"{name} hits"] = lambda ours=ours, found=found: ours._fuse(found)
    ms = _measured(calls, rounds, times)
    figures: dict[str, dict[str, dict[str, float]]] = {"ids": {}, "hits": {}}
    for layer, values in figures.items():
        for name in MODES:
            mine, other = ms[f"{name} {layer}"], ms[f"{name} theirs"] - ms["input"]
            values[name] = {
                "ours_ms": mine,
                "llama_index_ms": other,
                "times_faster": other / mine,
            }
    return figures


def whole(rounds: int, times: int) -> dict[str, object]:
    """Milliseconds of CPU for one ``retrieve`` over two retrievers that answer at once."""
    legs = [Static(hits) for hits in two_lists()]
    calls: dict[str, Callable[[], object]] = {
        "legs alone": lambda: [leg.retrieve("q") for leg in legs]
    }
    for name, (mode, options) in MODES.items():
        ours = HybridFusionRetriever(legs, similarity_top_k=TOP_K, **options)
        calls[f"{name} ours"] = lambda ours=ours: ours.retrieve("q")
        for use_async in (True, False):
            theirs = QueryFusionRetriever(
                legs,
                llm=MockLLM(),
                num_queries=1,
                mode=mode,
                similarity_top_k=TOP_K,
                use_async=use_async,
            )
            calls[f"{name} llama_index use_async={use_async}"] = lambda theirs=theirs: (
                theirs.retrieve("q")
            )
    return {f"{name} ms": value for name, value in _measured(calls, rounds, times).items()}


def _measured(calls: dict[str, Callable[[], object]], rounds: int, times: int) -> dict[str, float]:
    many = {name: repeated(call, times) for name, call in calls.items()}
    return {name: value / times for name, value in side_by_side(many, rounds=rounds).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, nothing written")
    quick = parser.parse_args().quick
    rounds, times = (3, 5) if quick else (31, 20)
    figures = {
        "list_length": LENGTH,
        "top_k": TOP_K,
        **methods(rounds, times),
        "retrieve": whole(rounds, times),
    }
    print(json.dumps(figures, indent=2))
    if not quick:
        print(save("fusion", figures))


if __name__ == "__main__":
    main()
