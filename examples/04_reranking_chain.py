"""From thirty candidates to the few that go into the prompt: rerank, cut off, diversify.

Three postprocessors in one chain, each an ordinary LlamaIndex postprocessor that also works alone
in node_postprocessors=[...].

Run: python examples/04_reranking_chain.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from llama_index.core.schema import NodeWithScore

from llama_index_hybrid_pack import (
    HybridPack,
    LateInteractionReranker,
    MMRPostprocessor,
    PostprocessorChain,
    RankingRetriever,
    ScoreThreshold,
)
from llama_index_hybrid_pack.chunking.reader import read_folder
from llama_index_hybrid_pack.errors import ScoreScaleError

HELP_CENTRE = Path(__file__).parent / "data" / "help_centre"
QUESTION = "The light of the hub is red"
OFF_TOPIC = "Which wine goes with grilled aubergines?"


def show(step: str, hits: list[NodeWithScore]) -> None:
    """Print the first five hits after a step."""
    print(f"{step}: {len(hits)} passages")
    for rank, hit in enumerate(hits[:5], start=1):
        print(f"  {rank}. {hit.node.metadata['file_path']}: {hit.node.metadata['heading']}")


def main() -> None:
    """Show what each step of the chain does to the candidates."""
    pages = read_folder(HELP_CENTRE, patterns=["devices/*.md", "troubleshooting/*.md"]).documents
    with tempfile.TemporaryDirectory(prefix="hybrid-pack-") as folder:
        pack = HybridPack.from_documents(pages, path=folder)

        rerank = LateInteractionReranker(
            embed_model=pack.embed_model,  # the one that is loaded already
            top_n=None,
            blend_weight=0.5,  # half the fused score, half the reranker's
        )
        # The cut-off is compared with the reranker's own cosine: the blended score means
        # something within one query only. Choose it on questions of your own.
        cut_off = ScoreThreshold(cutoff=0.55, scale="cosine", stage=rerank.stage_name)
        # The guides of two models say nearly the same; MMR reads the stored vectors.
        diversify = MMRPostprocessor(lambda_mult=0.4, top_n=5, store=pack.store)

        candidates = pack.fusion_retriever(top_k=30)
        print(f"=== {QUESTION}\n")
        hits = candidates.retrieve(QUESTION)
        show("Fusion", hits)
        for step in (rerank, cut_off, diversify):
            hits = step.postprocess_nodes(hits, query_str=QUESTION)
            show(f"\n{step.class_name()}", hits)

        print("\n=== The same as one retriever, with its trace\n")
        chain = PostprocessorChain(steps=[rerank, cut_off, diversify])
        ranked = RankingRetriever(candidates, [chain])
        print(ranked.retrieve_with_trace(QUESTION)[1])

        print(f"\n=== {OFF_TOPIC}\n")
        print(f"{len(ranked.retrieve(OFF_TOPIC))} passages: nothing in the help centre is near.")

        print("\n=== A cut-off on the wrong kind of score is refused\n")
        try:
            ScoreThreshold(cutoff=0.5, scale="probability").postprocess_nodes(
                candidates.retrieve(QUESTION)
            )
        except ScoreScaleError as error:
            print(f"ScoreScaleError: {error}")


if __name__ == "__main__":
    main()
