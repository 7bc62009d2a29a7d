"""Tables of README and docs/performance.md, written from ``results`` between marker lines.

``python -m benchmarks.tables``. The tables of docs/quality.md are written by
``python -m benchmarks.quality --report``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._quality_report import held_out
from benchmarks.common import RESULTS
from llama_index_hybrid_pack.evaluation.tables import markdown_table

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "docs" / "performance.md")
_BLOCK = re.compile(r"(<!-- table: (?P<name>[\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_SHOWN = (
    "LlamaIndex BM25Retriever",
    "LlamaIndex VectorStoreIndex",
    "LlamaIndex reciprocal_rerank",
    "LlamaIndex dist_based_score",
    "BM25",
    "dense",
    "hybrid",
    "hybrid + late interaction",
)


def results(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def ms(value: float) -> str:
    return f"{value:,.2f}" if value < 10 else f"{value:,.0f}"


def times(ratio: float) -> str:
    return f"{ratio:.1f}x" if ratio < 10 else f"{ratio:,.0f}x"


def row(label: str, ours: float, theirs: float, limit: str = "") -> list[str]:
    return [label, ms(ours), ms(theirs), times(theirs / ours), limit]


def speed() -> str:
    store, fusion, ranking = results("store"), results("fusion"), results("ranking")
    dense, bm25, query = store["dense"], store["bm25"], store["query"]
    mmr = ranking["mmr"]["cpu_ms"]
    rrf = fusion["ids"]["rrf"]
    raw = f"{dense['times_raw_faiss']:.2f} times raw FAISS, recall@100 {dense['recall_at_100']:.3f}"
    rows = [
        row(
            "dense top 100 of 100,000",
            dense["cpu_ms"]["ours"],
            dense["cpu_ms"]["simple_vector_store"],
            raw,
        ),
        row(
            "BM25 top 100 of 100,000",
            bm25["cpu_ms"]["ours"],
            bm25["cpu_ms"]["bm25_retriever"],
            f"{bm25['times_raw_tantivy']:.1f} times raw tantivy",
        ),
        row(
            "whole query, vector given, no reranking",
            query["cpu_ms"]["ours"],
            query["cpu_ms"]["llama_index"],
        ),
        row("rank fusion of 2 x 100 ids", rrf["ours_ms"], rrf["llama_index_ms"]),
        row(
            "MMR 200 → 10, lists as stores give them",
            mmr["ours_lists"],
            mmr["llama_index_lists"],
            "equal to brute force",
        ),
    ]
    return markdown_table(
        ["CPU ms, median", "here", "built in", "faster", "against the limit"], rows
    )


def parsing() -> str:
    figures = results("parser")
    names = ["StructureNodeParser", "MarkdownNodeParser", "SentenceSplitter"]
    rows = [
        [kind, *(f"{figures[kind]['parsers'][name]['mb_per_s']:.2f}" for name in names)]
        for kind in ("headings", "prose", "mixed", "unbroken_line")
    ]
    return markdown_table(["MB/s of CPU time", *names], rows)


def growth() -> str:
    figures = results("parser")["growth"]
    rows = [
        [kind, f"{step['size']:,.0f}", ms(step["ms"]), f"{step.get('times_the_half', 0):.2f}"]
        for kind, steps in figures.items()
        for step in steps[1:]
    ]
    return markdown_table(["document", "size", "CPU ms", "times the half size"], rows)


def bm25() -> str:
    figures = results("bm25")
    rows = []
    for size in ("10000", "100000"):
        for key, found in figures[size].items():
            if key.endswith("_ms") and "BM25Retriever" in found:
                task = f"{int(size):,}: {key.removesuffix('_ms').replace('_', ' ')}"
                rows.append(
                    [
                        task,
                        ms(found["ours"]),
                        ms(found["BM25Retriever"]),
                        times(found["BM25Retriever"] / found["ours"]),
                        ms(found["bm25s"]) if "bm25s" in found else "",
                    ]
                )
    header = ["nodes: task, CPU ms", "IdentifierBM25Retriever", "BM25Retriever", "faster", "bm25s"]
    return markdown_table(header, rows)


def store() -> str:
    figures = results("store")
    dense, ingest, disk = figures["dense"], figures["ingest"], figures["bytes_on_disk"]
    share = dense["filter_1_percent"]["share_of_unfiltered_time"]
    rows = [
        ["1 % filter, dense top 100", f"{ms(dense['cpu_ms']['ours_filtered'])} ms"],
        ["the same, first use of the filter", f"{ms(dense['cpu_ms']['ours_filtered_cold'])} ms"],
        ["share of the unfiltered time", f"{share:.2f}"],
        ["filtered result exact, full k", str(dense["filter_1_percent"]["exact"])],
        ["ingest of 100,000, both legs", f"{ingest['ours_cpu_s']:.1f} s"],
        ["VectorStoreIndex alone", f"{ingest['vector_store_index_cpu_s']:.1f} s"],
        ["BM25Retriever alone", f"{ingest['bm25_retriever_cpu_s']:.1f} s"],
        ["one node added", f"{ms(ingest['ours_single_upsert_cpu_ms'])} ms"],
        ["open", f"{figures['reopen']['open_cpu_s'] * 1000:.1f} ms"],
        ["open and first search", f"{figures['reopen']['open_and_first_search_cpu_s']:.2f} s"],
        ["on disk", f"{sum(disk.values()) / figures['nodes'] / 1000:.1f} kB a node"],
    ]
    return markdown_table(["LocalHybridStore, 100,000 x 384, CPU time", ""], rows)


def imports() -> str:
    rows = [
        [name, f"{found['cpu_s']:.2f}", f"{found['rss_mb']:.0f}"]
        for name, found in results("imports")["imports"].items()
    ]
    return markdown_table(["import", "CPU s", "MB"], rows)


def quality() -> str:
    return held_out(
        results("quality"), ["scifact", "anthropic_code", "anthropic_docs", "squad2"], _SHOWN
    )


TABLES: dict[str, Callable[[], str]] = {
    "quality": quality,
    "speed": speed,
    "parsing": parsing,
    "growth": growth,
    "bm25": bm25,
    "store": store,
    "imports": imports,
}


def main() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        filled = _BLOCK.sub(lambda found: f"{found[1]}{TABLES[found['name']]()}\n{found[3]}", text)
        page.write_text(filled, encoding="utf-8")
        print(page)


if __name__ == "__main__":
    main()
