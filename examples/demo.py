"""The main job, start to end: ingest a help centre, ask it, look inside, measure it.

Run it with ``make demo``. Everything runs on this machine: the embedding model comes from a
package, and no LLM is needed. Your own folder: ``hybrid-pack ingest FOLDER``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from rich.console import Console

from llama_index_hybrid_pack import GoldenSet, HybridPack, RetrievalEvaluator
from llama_index_hybrid_pack.answering.passages import source_label
from llama_index_hybrid_pack.chunking.reader import read_folder
from llama_index_hybrid_pack.evaluation.report import comparison_table

DATA = Path(__file__).parent / "data"
QUESTIONS = [
    "What does error E-504 mean?",
    "How long do I have to ask for my money back?",
    "The screen of my device stays black after an update",
    "How do I rotate an API key without downtime?",
    "Which plan includes single sign-on?",
]


def main() -> None:
    """Run the demo."""
    console = Console()
    found = read_folder(DATA / "help_centre")
    with tempfile.TemporaryDirectory(prefix="hybrid-pack-demo-") as folder:
        console.rule("1. Ingest")
        pack = HybridPack.open_or_create(folder)
        console.print(str(pack.ingest(found.documents, show_progress=True)))
        console.print(f"Again: {pack.ingest(found.documents)}", style="dim")

        console.rule("2. Ask")
        for question in QUESTIONS:
            console.print(f"\n{question}", style="bold")
            for rank, hit in enumerate(pack.search(question, top_n=2), start=1):
                text = " ".join(hit.text.split())
                console.print(f"  {rank}. {source_label(hit.node)}", style="cyan", markup=False)
                console.print(f"     {text[:200]}{'…' if len(text) > 200 else ''}", markup=False)

        console.rule("3. Look inside: where did each passage come from?")
        console.print(
            str(pack.explain(QUESTIONS[0])), markup=False, highlight=False, soft_wrap=True
        )

        console.rule("4. Measure: 60 questions with known answers")
        evaluator = RetrievalEvaluator(
            GoldenSet.from_jsonl(DATA / "golden.jsonl"), k_values=(1, 5, 10)
        )
        reports = [
            evaluator.evaluate(retriever, name=name)
            for name, retriever in pack.ladder(top_n=10).items()
        ]
        console.print(comparison_table(reports), markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
