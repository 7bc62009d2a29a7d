"""Quick start: a folder of documents, a question, the passages that answer it.

Run: python examples/01_quickstart.py
No LLM and no network are needed; the embedding model comes with the extra 'models'.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from llama_index_hybrid_pack import HybridPack
from llama_index_hybrid_pack.chunking.reader import read_folder

HELP_CENTRE = Path(__file__).parent / "data" / "help_centre"


def main() -> None:
    """Ingest, ask, look inside, ingest again."""
    documents = read_folder(HELP_CENTRE).documents

    with tempfile.TemporaryDirectory(prefix="hybrid-pack-") as folder:
        pack = HybridPack.from_documents(documents, path=folder)
        print(f"{len(documents)} documents became {pack.store.count()} passages in {folder}\n")

        # The shortest way: a question in, a response out. Without an LLM the response is the
        # passages with their sources; as_query_engine(llm=...) writes an answer from them.
        question = "What does error E-504 mean?"
        print(f"=== {question}\n")
        print(pack.run(question, top_n=1))

        # As a retriever, for agents, routers and query engines of your own.
        question = "If our bank declines the charge, do the warnings about a freezer stop?"
        print(f"\n=== {question}\n")
        retriever = pack.as_retriever(top_n=3)
        for rank, hit in enumerate(retriever.retrieve(question), start=1):
            heading = hit.node.metadata["heading"]
            print(f"{rank}. {hit.score:6.3f}  {hit.node.metadata['file_path']}: {heading}")

        # Where did each passage come from?
        print("\n=== Look inside\n")
        print(pack.explain(question, top_n=3))

        # The store remembers its model and its options, and what has not changed costs nothing.
        print("\n=== Open it again and ingest the same folder\n")
        print(HybridPack.open(folder).ingest(documents))


if __name__ == "__main__":
    main()
