"""Hybrid search beside a vector store that you have already.

LlamaIndex's own in-memory store stands here for any other: nothing about the index changes. BM25
that keeps identifiers whole is put beside it, and both lists are fused without an LLM.

Run: python examples/02_any_vector_store.py
"""

from __future__ import annotations

from pathlib import Path

from llama_index.core import VectorStoreIndex
from llama_index.core.schema import NodeWithScore

from llama_index_hybrid_pack import (
    HybridFusionRetriever,
    IdentifierBM25Retriever,
    SentenceTransformerEmbedding,
    StructureNodeParser,
)
from llama_index_hybrid_pack.chunking.reader import read_folder

HELP_CENTRE = Path(__file__).parent / "data" / "help_centre"
#: A question, and words that stand only in the passage that answers it.
QUESTIONS = {
    "How do I get rid of ERR-5040?": "| ERR-5040 |",
    "May an Operator mark ranges as invalid?": "| Mark ranges as invalid |",
    "A developer accidentally published our token, what should we do?": "Don't rotate: revoke.",
    "Could an employee tamper with a recorded value afterwards?": "deleted or changed, by nobody",
}


def place(hits: list[NodeWithScore], words: str) -> str:
    """Return the rank of the passage that holds the words."""
    ranks = [rank for rank, hit in enumerate(hits, start=1) if words in hit.text]
    return f"{ranks[0]:>6}" if ranks else "     -"


def main() -> None:
    """Compare the dense leg, the BM25 leg and both together."""
    embed_model = SentenceTransformerEmbedding()
    parser = StructureNodeParser.for_embed_model(embed_model)
    documents = read_folder(HELP_CENTRE).documents

    # Your index, as it is.
    index = VectorStoreIndex.from_documents(
        documents, transformations=[parser], embed_model=embed_model
    )
    dense = index.as_retriever(similarity_top_k=30)

    # BM25 over the same nodes. For a store that keeps the texts itself: from_defaults(nodes=...).
    bm25 = IdentifierBM25Retriever.from_defaults(index=index, similarity_top_k=30)

    hybrid = HybridFusionRetriever([dense, bm25], mode="weighted", similarity_top_k=30)

    print("Rank of the passage that answers, of 30 candidates per leg\n")
    print(f"{'dense':>6} {'BM25':>6} {'hybrid':>6}   question")
    for question, words in QUESTIONS.items():
        ranks = [place(leg.retrieve(question), words) for leg in (dense, bm25, hybrid)]
        print(*ranks, f"  {question[:70]}")

    print("\nWhat each leg thought of the hits:\n")
    print(hybrid.scoped(top_k=3).explain(next(iter(QUESTIONS))))

    # Additions and deletions are searchable at once, without a rebuild of the BM25 index.
    removed = bm25.delete_ref_doc("security/advisories.md")
    left = place(bm25.retrieve("TLN-2024-0117"), "hub firmware v2.0.0").strip()
    print(f"\n{removed} passages of security/advisories.md deleted; found by BM25 now: {left}")


if __name__ == "__main__":
    main()
