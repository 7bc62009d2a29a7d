"""Measure retrieval: 60 questions with known answers, three retrievers side by side.

The answers are spans of the documents, so the figures stay comparable when the documents are cut
differently. A setting is chosen on one half of the questions and reported on the other.

Run: python examples/05_evaluate.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from llama_index_hybrid_pack import (
    GoldenSet,
    HybridFusionRetriever,
    HybridPack,
    RetrievalEvaluator,
    StoreRetriever,
)
from llama_index_hybrid_pack.chunking.reader import read_folder
from llama_index_hybrid_pack.evaluation.report import comparison_table

DATA = Path(__file__).parent / "data"


def main() -> None:
    """Compare BM25, dense and hybrid, look at the kinds of questions, choose a weight."""
    golden = GoldenSet.from_jsonl(DATA / "golden.jsonl")
    with tempfile.TemporaryDirectory(prefix="hybrid-pack-") as folder:
        pack = HybridPack.from_documents(read_folder(DATA / "help_centre").documents, path=folder)
        store, model = pack.store, pack.embed_model

        def hybrid(dense_weight: float) -> HybridFusionRetriever:
            return HybridFusionRetriever.from_store(
                store, embed_model=model, dense_weight=dense_weight, similarity_top_k=10
            )

        systems = {
            "BM25": StoreRetriever(store, leg="bm25", similarity_top_k=10),
            "dense": StoreRetriever(store, leg="dense", similarity_top_k=10, embed_model=model),
            "hybrid": hybrid(0.5),
        }
        evaluator = RetrievalEvaluator(golden, k_values=(1, 5, 10))
        reports = {
            name: evaluator.evaluate(system, name=name, show_progress=False)
            for name, system in systems.items()
        }
        print(comparison_table(list(reports.values())))

        print("\nMRR by kind of question\n")
        print(f"{'kind':15} {'n':>3}" + "".join(f"{name:>8}" for name in reports))
        for kind, found in reports["hybrid"].tags.items():
            means = [report.tags[kind]["mrr"].mean for report in reports.values()]
            print(f"{kind:15} {found['mrr'].n:3}" + "".join(f"{mean:8.3f}" for mean in means))

        print("\nQuestions of which hybrid found nothing among ten passages\n")
        for question_id, value in reports["hybrid"].values("hit_rate@10").items():
            if value == 0:
                print(f"  {question_id}: {golden[question_id].question}")

        print("\nThe weight of the dense leg, chosen on one half and reported on the other\n")
        development, held_out = golden.split()
        chooser = RetrievalEvaluator(development, k_values=(10,))
        tried = {
            weight: chooser.evaluate(hybrid(weight), show_progress=False).metrics["ndcg@10"]
            for weight in (0.3, 0.4, 0.5, 0.6, 0.7)
        }
        for weight, gain in tried.items():
            print(f"  {weight}: nDCG@10 {gain.mean:.3f} on {gain.n} questions")
        best = max(tried, key=lambda weight: tried[weight].mean)
        reporter = RetrievalEvaluator(held_out, k_values=(10,))
        final = reporter.evaluate(hybrid(best), show_progress=False).metrics["ndcg@10"]
        print(
            f"  {best} on the {final.n} others: nDCG@10 {final.mean:.3f} "
            f"[{final.low:.2f}, {final.high:.2f}]"
        )


if __name__ == "__main__":
    main()
