"""MMR, cross-encoder and late interaction beside LlamaIndex's own.

    python -m benchmarks.ranking                  all -> results/ranking.json
    python -m benchmarks.ranking --quick          fewer rounds and pairs, nothing written
    python -m benchmarks.ranking --model PATH     a cross-encoder of yours instead of random heads

CPU time of this process with one thread, contenders in turns. The cross-encoders have random
heads, since none comes with a package: the figures are about speed and equality of scores, and
say nothing about quality.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # when run as a file
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings
from llama_index.core.postprocessor import SentenceTransformerRerank
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode

from benchmarks.common import cpu_ms, save, side_by_side
from llama_index_hybrid_pack.indexing.embedding import SentenceTransformerEmbedding
from llama_index_hybrid_pack.ranking.cross_encoder import CrossEncoderReranker
from llama_index_hybrid_pack.ranking.late_interaction import LateInteractionReranker
from llama_index_hybrid_pack.scoring.mmr import mmr_rank, mmr_select
from llama_index_hybrid_pack.scoring.vectors import as_matrix
from tests.tiny_models import save_tiny_cross_encoder

QUESTION = "How long does a refund take after the parcel is back?"


def clustered(n: int, dimension: int, seed: int) -> np.ndarray:
    """Unit vectors around a few centres, as near-copies among search results lie."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n // 8, dimension))
    vectors = centres[rng.integers(len(centres), size=n)] + rng.normal(size=(n, dimension)) * 0.7
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def brute_force(
    relevance: np.ndarray, vectors: np.ndarray, lambda_mult: float, k: int
) -> list[int]:
    """MMR as the formula says it, pair by pair."""
    picked: list[int] = []
    rest = list(range(len(vectors)))
    wide = vectors.astype(np.float64)
    while rest and len(picked) < k:
        values = {
            i: lambda_mult * relevance[i]
            - (1 - lambda_mult) * max((float(wide[i] @ wide[j]) for j in picked), default=0.0)
            for i in rest
        }
        best = max(rest, key=values.__getitem__)
        picked.append(best)
        rest.remove(best)
    return picked


def mmr(*, quick: bool) -> dict[str, object]:
    """200 candidates of 384 dimensions, 10 picks: the question's vector in, positions out."""
    n, dimension, k, lambda_mult = 200, 384, 10, 0.5
    vectors = clustered(n, dimension, 0)
    query = clustered(n, dimension, 1)[0]
    lists, query_list = vectors.tolist(), query.tolist()
    rows = list(vectors)

    relevance = vectors @ query

    def ours_array() -> list[int]:
        return mmr_select(vectors @ query, vectors, lambda_mult=lambda_mult, k=k)

    def ours_lists() -> list[int]:
        # From lists, as LlamaIndex's stores give them: reading them is part of the work.
        matrix = as_matrix(lists)
        return mmr_select(matrix @ query, matrix, lambda_mult=lambda_mult, k=k)

    def theirs(given: list, question: object) -> list[int]:
        return get_top_k_mmr_embeddings(
            question, given, similarity_top_k=k, mmr_threshold=lambda_mult
        )[1]

    calls = {
        "llama_index_lists": lambda: theirs(lists, query_list),
        "llama_index_arrays": lambda: theirs(rows, query),
    }
    slow = side_by_side(calls, rounds=3 if quick else 15)
    # Fast calls are timed in bundles: the clock's step is coarse.
    bundle, rounds = 50, 3 if quick else 15
    fast: dict[str, list[float]] = {"lists": [], "array": []}
    for _ in range(rounds):
        fast["lists"].append(cpu_ms(ours_lists, repeat=bundle))
        fast["array"].append(cpu_ms(ours_array, repeat=bundle))
    ours_ms = {name: float(np.median(values)) for name, values in fast.items()}
    equal = True
    for seed in range(5 if quick else 50):
        case, question = clustered(n, dimension, 10 + seed), clustered(n, dimension, 900 + seed)[0]
        weight = seed % 11 / 10
        got = [p.position for p in mmr_rank(case @ question, case, lambda_mult=weight, k=k)]
        if weight > 0:
            equal &= got == brute_force(case @ question, case, weight, k)
    reference = brute_force(relevance, vectors, lambda_mult, k)
    return {
        "candidates": n,
        "picks": k,
        "dimension": dimension,
        "cpu_ms": {**slow, "ours_lists": ours_ms["lists"], "ours_array": ours_ms["array"]},
        "times_faster": {
            "lists": slow["llama_index_lists"] / ours_ms["lists"],
            "arrays": slow["llama_index_arrays"] / ours_ms["array"],
            "lists_against_array": slow["llama_index_lists"] / ours_ms["array"],
        },
        "equal_to_brute_force": equal,
        "llama_index_agrees_with_brute_force": sum(
            a == b for a, b in zip(theirs(rows, query), reference, strict=True)
        ),
    }


def passages(n: int, seed: int = 0) -> list[str]:
    """Texts of 40 to 240 words, of real English words, so that tokens are like real ones."""
    text = (
        "a refund for the parcel in our warehouse is paid to the customer after an invoice or an "
        "account error if the gateway has a timeout reset your password and login again shipping "
        "abroad takes one week more than a month of subscription plan upgrade limit export report"
    )
    words = text.split()
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(words, size=rng.integers(40, 241))) for _ in range(n)]


def hits(n: int) -> list[NodeWithScore]:
    """Hits with falling scores."""
    return [
        NodeWithScore(node=TextNode(id_=f"{i:03}", text=text), score=1.0 - i / n)
        for i, text in enumerate(passages(n))
    ]


def random_head_model(folder: Path) -> str:
    """A cross-encoder of MiniLM's shape: the packaged encoder's weights under a random head."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    path = SentenceTransformerEmbedding().tokenizer_name
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(path, num_labels=1)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(path).save_pretrained(folder)
    return str(folder)


def rerank(model: str, *, pairs: int, rounds: int) -> dict[str, object]:
    """One query's candidates through LlamaIndex's SentenceTransformerRerank and ours."""
    theirs = SentenceTransformerRerank(
        model=model, top_n=pairs, device="cpu", trust_remote_code=False
    )
    # Theirs sets 512 whatever the model reads; the tiny one would fail with that.
    limit = min(512, theirs._model.config.max_position_embeddings)
    theirs._model.tokenizer.model_max_length = limit
    ours = CrossEncoderReranker(
        model=model,
        top_n=None,
        device="cpu",
        blend_weight=1.0,
        metadata_mode=MetadataMode.EMBED,
        max_length=limit,
        on_error="raise",
    )

    def logits(value: float) -> float:
        # Theirs applies whatever activation the model's files name; here that is a sigmoid.
        return float(np.log(value) - np.log1p(-np.float64(value)))

    def run_theirs() -> list[NodeWithScore]:
        return theirs.postprocess_nodes(hits(pairs), query_str=QUESTION)

    def run_ours() -> list[NodeWithScore]:
        return ours.postprocess_nodes(hits(pairs), query_str=QUESTION)

    sigmoid = type(theirs._model.activation_fn).__name__ == "Sigmoid"
    left = {h.node.node_id: float(h.score) for h in run_theirs()}
    right = {h.node.node_id: h.score for h in run_ours()}
    if sigmoid:
        left = {name: logits(score) for name, score in left.items()}
    times = side_by_side({"llama_index": run_theirs, "ours": run_ours}, rounds=rounds, warmup=0)
    by_batch = {}
    for size in (4, 8, 16, 32):
        ours.batch_size = size
        by_batch[str(size)] = cpu_ms(run_ours)
    return {
        "pairs": pairs,
        "cpu_ms": times,
        "times_faster": times["llama_index"] / times["ours"],
        "ours_cpu_ms_by_batch_size": by_batch,
        "largest_difference_of_logits": max(abs(left[name] - right[name]) for name in left),
    }


def late_interaction(*, rounds: int) -> dict[str, object]:
    """30 candidates with the packaged embedding model; passages of 40 to 240 words."""
    embed_model = SentenceTransformerEmbedding(device="cpu")
    reranker = LateInteractionReranker(embed_model=embed_model, top_n=None, on_error="raise")
    given = hits(30)
    cpu = side_by_side(
        {
            "late_interaction": lambda: reranker.postprocess_nodes(given, query_str=QUESTION),
            "embedding_the_same_texts": lambda: embed_model.get_text_embedding_batch(
                [hit.node.get_content() for hit in given]
            ),
        },
        rounds=rounds,
    )
    start = time.perf_counter()
    reranker.postprocess_nodes(given, query_str=QUESTION)
    wall = (time.perf_counter() - start) * 1000.0
    by_batch = {}
    for size in (4, 8, 16, 32):
        embed_model.model_batch_size = size
        by_batch[str(size)] = cpu_ms(
            lambda: embed_model.get_text_embedding_batch(passages(96, seed=1))
        )
    return {
        "candidates": 30,
        "cpu_ms": cpu,
        "wall_ms": wall,
        "embed_96_cpu_ms_by_model_batch_size": by_batch,
    }


def main() -> None:
    """Run what was asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, nothing written")
    parser.add_argument("--model", help="name or path of a cross-encoder to time instead")
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    quick: bool = arguments.quick
    pairs, rounds = (12, 1) if quick else (50, 5)
    figures: dict[str, object] = {"mmr": mmr(quick=quick)}
    with tempfile.TemporaryDirectory() as folder:
        models = (
            {"given": arguments.model}
            if arguments.model
            else {
                "tiny_random": save_tiny_cross_encoder(Path(folder) / "tiny"),
                "minilm_random_head": random_head_model(Path(folder) / "minilm"),
            }
        )
        for name, model in models.items():
            figures[f"rerank_{name}"] = rerank(model, pairs=pairs, rounds=rounds)
    figures["late_interaction"] = late_interaction(rounds=rounds)
    for name, values in figures.items():
        print(name, values)
    if not quick:
        print(save("ranking", figures, "sentence-transformers", "torch"))


if __name__ == "__main__":
    main()
