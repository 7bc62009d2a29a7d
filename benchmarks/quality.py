"""nDCG@10 and recall of ours and LlamaIndex's, on corpora with relevance judgements.

    python -m benchmarks.quality                 every set -> results/quality.json, docs/quality.md
    python -m benchmarks.quality --quick         anthropic_docs and anthropic_code, nothing written
    python -m benchmarks.quality --report        docs/quality.md from the JSON that is there
    python -m benchmarks.quality --embed-model PATH --cross-encoder PATH

Defaults are chosen on development halves and reported on the halves that were not looked at.
The first run embeds everything (half an hour on two cores); later ones read ``--cache``.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from llama_index.core.schema import QueryBundle

from benchmarks._quality_data import CHOOSING, SETS, CachedEmbedder, Corpus, load
from benchmarks._quality_report import write_report
from benchmarks._quality_systems import DEFAULTS, DEPTH, INCUMBENT, System, Systems
from benchmarks.common import cpu_ms, save, side_by_side
from llama_index_hybrid_pack.evaluation.evaluator import RetrievalEvaluator
from llama_index_hybrid_pack.evaluation.golden_set import GoldenSet
from llama_index_hybrid_pack.evaluation.results import RetrievalReport
from llama_index_hybrid_pack.evaluation.significance import bootstrap_intervals, holm, paired_test
from llama_index_hybrid_pack.indexing.embedding import PACKAGED_MODEL, SentenceTransformerEmbedding
from llama_index_hybrid_pack.ranking.late_interaction import LateInteractionReranker

DATA = Path(os.environ.get("HYBRID_PACK_SHARED", Path(__file__).parents[2] / "shared")) / "data"
METRIC = "ndcg@10"
SHOWN = ("ndcg@10", "recall@5", "recall@10", "recall@20", "recall@50", "mrr")
#: What is claimed, as (second, first): second minus first is tested on every set.
CLAIMS = (
    ("hybrid", INCUMBENT),
    ("hybrid + late interaction", INCUMBENT),
    ("hybrid + late interaction", "hybrid"),
    ("late interaction alone", "hybrid"),
    ("hybrid", "better leg"),
    ("hybrid", "rrf"),
    ("hybrid", "min_max"),
    ("hybrid, 30 per leg", "hybrid"),
    ("BM25", "LlamaIndex BM25Retriever"),
    ("our fusion, LlamaIndex's legs", INCUMBENT),
    ("hybrid", "LlamaIndex's fusion, our legs"),
    ("rrf", "LlamaIndex reciprocal_rerank"),
    ("hybrid + cross-encoder", "hybrid"),
)
Values = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--embed-model", default=PACKAGED_MODEL, help="path or name")
    parser.add_argument("--cross-encoder", help="path or name; one more row per set")
    parser.add_argument("--no-development", action="store_true", help="held-out halves only")
    parser.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()) / "hybrid-pack-quality"
    )
    arguments = parser.parse_args()
    if arguments.report:
        print(write_report())
        return
    sets = ["anthropic_docs", "anthropic_code"] if arguments.quick else arguments.sets
    embedder = CachedEmbedder(
        SentenceTransformerEmbedding(model_name=arguments.embed_model), arguments.cache
    )
    figures = measure(sets, embedder, arguments.cross_encoder, not arguments.no_development)
    if arguments.quick or arguments.embed_model != PACKAGED_MODEL or set(sets) != set(SETS):
        print("Nothing written: not every set, or another model.")
        return
    print(save("quality", figures, "ranx", "sentence-transformers"))
    print(write_report())


def measure(
    sets: Sequence[str], embedder: CachedEmbedder, cross_encoder: str | None, development: bool
) -> dict[str, object]:
    """Run everything set by set, and return the figures for the JSON file."""
    chosen_on: dict[str, list[list[object]]] = {}
    found: dict[str, dict[str, object]] = {}
    values: dict[str, dict[str, Values]] = {}
    for name in sets:
        started = time.perf_counter()
        corpus = load(name, embedder, DATA)
        systems = Systems(corpus, embedder, cross_encoder)
        print(f"{name}: {len(corpus.nodes)} nodes", flush=True)
        if development and name in CHOOSING:
            reports = run(corpus, corpus.development, systems.development())
            chosen_on[name] = [[item.name, item.metrics[METRIC].mean] for item in reports]
        reports = run(corpus, corpus.held_out, systems.held_out())
        for report in reports:
            print(f"  {report.name:32s} {report.metrics[METRIC].mean:.4f}", flush=True)
        values[name] = {report.name: report.values(METRIC) for report in reports}
        found[name] = {
            "documents": len(corpus.nodes),
            "n_development": len(corpus.development),
            "n_held_out": len(corpus.held_out),
            "systems": [_row(report) for report in reports],
            "milliseconds": cost(systems, corpus) if name == "scifact" else {},
        }
        print(f"  {time.perf_counter() - started:.0f} s", flush=True)
    return {
        "metric": METRIC,
        "embed_model": embedder.model.model_name,
        "cross_encoder": cross_encoder,
        "defaults": {
            **DEFAULTS.retrieval.model_dump(mode="json"),
            **DEFAULTS.ranking.model_dump(mode="json"),
        },
        "lists": DEPTH,
        "development": {"weights": list(CHOOSING.items()), "means": chosen_on},
        "sets": found,
        "order": list(sets),
        "claims": claims(values),
    }


def run(corpus: Corpus, golden: GoldenSet, systems: Iterable[System]) -> list[RetrievalReport]:
    evaluator = RetrievalEvaluator(golden, query_embeddings=corpus.vectors)
    reports = [
        evaluator.evaluate(system.retriever, name=system.name, postprocessors=system.postprocessors)
        for system in systems
    ]
    for report in reports:
        if report.failures:
            raise RuntimeError(f"{corpus.name}, {report.name}: {report.failures}")
    return reports


def claims(values: Mapping[str, Mapping[str, Values]]) -> list[dict[str, object]]:
    """Test every claim; the p-values of all claims on the sets together are corrected too."""
    found = [claim(second, first, values) for second, first in CLAIMS]
    found = [item for item in found if item["sets"]]
    together = [item["together"] for item in found if item["together"] is not None]
    for row, p in zip(together, holm([row["p"] for row in together]), strict=True):
        row["p_holm"] = p
    return found


def claim(second: str, first: str, values: Mapping[str, Mapping[str, Values]]) -> dict[str, object]:
    """Test one difference on every set, and on all choosing sets together."""
    pairs = {
        name: (_values(systems, first), _values(systems, second))
        for name, systems in values.items()
        if second in systems
    }
    rows = {}
    for name, (before, after) in pairs.items():
        change = np.array([after[key] - before[key] for key in before])
        low, high = bootstrap_intervals(change).tolist()
        rows[name] = {
            "difference": float(change.mean()),
            "low": low,
            "high": high,
            "p": paired_test(np.zeros(len(change)), change),
            "n": len(change),
        }
    for row, p in zip(rows.values(), holm([row["p"] for row in rows.values()]), strict=True):
        row["p_holm"] = p
    return {"second": second, "first": first, "sets": rows, "together": _together(pairs)}


def _together(pairs: Mapping[str, tuple[Values, Values]]) -> dict[str, float] | None:
    """Mean difference over the choosing sets, each with its weight whatever its size."""
    if any(name not in pairs for name in CHOOSING):
        return None
    total = sum(CHOOSING.values())
    scaled, means = [], np.zeros(10_000)
    for seed, (name, weight) in enumerate(CHOOSING.items()):
        before, after = pairs[name]
        change = np.array([after[key] - before[key] for key in before])
        scaled.append(change * weight / total / len(change))
        rng = np.random.default_rng(seed)
        for start in range(0, len(means), 500):  # questions are drawn within their set
            drawn = rng.integers(0, len(change), (500, len(change)))
            means[start : start + 500] += change[drawn].mean(axis=1) * weight / total
    flat = np.concatenate(scaled)
    low, high = np.quantile(means, [0.025, 0.975]).tolist()
    p = paired_test(np.zeros(len(flat)), flat)
    return {"difference": float(flat.sum()), "low": low, "high": high, "p": p, "n": len(flat)}


def _values(systems: Mapping[str, Values], name: str) -> Values:
    """Values of a system; the better leg is the one with the higher mean on these questions."""
    if name == "better leg":
        return max((systems["BM25"], systems["dense"]), key=lambda found: sum(found.values()))
    return systems[name]


def _row(report: RetrievalReport) -> dict[str, object]:
    metrics = {
        name: {"mean": item.mean, "low": item.low, "high": item.high}
        for name, item in report.metrics.items()
        if name in SHOWN
    }
    return {"name": report.name, "n": report.n_scored, "metrics": metrics}


def cost(systems: Systems, corpus: Corpus) -> dict[str, float]:
    """CPU milliseconds per question, without the embedding of the question."""
    bundles = [
        QueryBundle(question.question, embedding=corpus.vectors[question.id])
        for question in list(corpus.held_out)[:50]
    ]
    hybrid = {depth: systems.hybrid(leg_top_k=depth, similarity_top_k=30) for depth in (30, 100)}
    searches = {
        f"hybrid search, {depth} per leg": lambda retriever=retriever: [
            retriever.retrieve(bundle) for bundle in bundles
        ]
        for depth, retriever in hybrid.items()
    }
    figures = {name: ms / len(bundles) for name, ms in side_by_side(searches, rounds=5).items()}
    reranker = LateInteractionReranker(embed_model=systems.embedder.model)
    hits = [(bundle, hybrid[100].retrieve(bundle)) for bundle in bundles[:5]]
    reranker.postprocess_nodes(hits[0][1], query_bundle=hits[0][0])
    reranked = [
        cpu_ms(lambda hit=hit: reranker.postprocess_nodes(hit[1], query_bundle=hit[0]))
        for hit in hits
    ]
    figures["late interaction over 30 abstracts"] = float(np.median(reranked))
    return figures


if __name__ == "__main__":
    main()
