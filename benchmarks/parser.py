"""Parsers side by side: MB/s on headings and on prose, and how the time grows with the size.

    python -m benchmarks.parser [--quick]

Contenders parse the same documents in the same run, in turns; figures are CPU time of the
process. LlamaIndex's sentence splitter gets a real copy of its nltk data, because nltk refuses
the hard links that some installers make.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from benchmarks.common import cpu_ms, save

_SENTENCES = (
    "The queue holds every job until a worker takes it.",
    "A worker that stops answering gives its job back after ninety seconds.",
    "Refunds reach the card within ten working days, weekends not counted.",
    "Version 2.1.3 reads both formats, but it writes only the newer one.",
    "Ask the on-call engineer before you raise the limit above 500 requests per minute.",
    "Most failures (about 70 percent) come from expired credentials, e.g. old API keys.",
)


def copy_nltk_data(folder: Path) -> None:
    """Point nltk to files with one link each, before LlamaIndex first looks for them."""
    import llama_index.core

    bundled = Path(llama_index.core.__file__).parent / "_static" / "nltk_cache"
    shutil.copytree(bundled, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
    os.environ["NLTK_DATA"] = str(folder)


def headings(count: int) -> str:
    """A document of ``count`` sections of one line each, three levels deep."""
    return "".join(
        f"{'#' * (1 + index % 3)} Section {index}\n\nSome text about part {index}.\n\n"
        for index in range(count)
    )


def prose(characters: int) -> str:
    """Paragraphs of six sentences, each a little different, without headings."""
    paragraphs = []
    size = number = 0
    while size < characters:
        first = number % len(_SENTENCES)
        sentences = (*_SENTENCES[first:], *_SENTENCES[:first])
        paragraph = f"Note {number}. {' '.join(sentences)}"
        paragraphs.append(paragraph)
        size += len(paragraph) + 2
        number += 1
    return "\n\n".join(paragraphs)[:characters]


def mixed(characters: int) -> str:
    """Headings, prose, lists, tables and code, as a manual has them."""
    parts = []
    size = number = 0
    while size < characters:
        rows = "".join(f"| item {row} | {row * number} |\n" for row in range(12))
        part = (
            f"## Chapter {number}\n\n{prose(900)}\n\n- first\n  - nested\n- second\n\n"
            f"| name | value |\n|---|---|\n{rows}\n"
            f"```python\ndef f{number}(x):\n    return x\n```\n\n"
        )
        parts.append(part)
        size += len(part)
        number += 1
    return "".join(parts)


def in_turns(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, dict[str, float]]:
    """CPU milliseconds of each contender, minimum and median over interleaved rounds."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(cpu_ms(call))
    return {
        name: {"min_ms": min(values), "median_ms": statistics.median(values)}
        for name, values in times.items()
    }


def contenders(tokenizer: str) -> dict[str, object]:
    from llama_index.core.node_parser import MarkdownNodeParser, SentenceSplitter

    from llama_index_hybrid_pack.chunking.structure import StructureNodeParser

    return {
        "StructureNodeParser": StructureNodeParser(chunk_size=256, tokenizer=tokenizer),
        "MarkdownNodeParser": MarkdownNodeParser(),
        "SentenceSplitter": SentenceSplitter(chunk_size=256, chunk_overlap=0),
    }


def compare(text: str, parsers: Mapping[str, object], rounds: int) -> dict[str, object]:
    """Parse one text with each parser; MB/s, number of nodes, and our advantage."""
    from llama_index.core import Document

    document = Document(text=text, id_="benchmark")
    counts: dict[str, int] = {}

    def call(name: str) -> Callable[[], None]:
        def run() -> None:
            counts[name] = len(parsers[name].get_nodes_from_documents([document]))  # type: ignore[attr-defined]

        return run

    times = in_turns({name: call(name) for name in parsers}, rounds)
    ours = times["StructureNodeParser"]
    rows = {
        name: {
            **figures,
            "mb_per_s": len(text) / figures["min_ms"] / 1000.0,
            "nodes": counts[name],
            "times_slower_than_ours": figures["median_ms"] / ours["median_ms"],
        }
        for name, figures in times.items()
    }
    return {"characters": len(text), "rounds": rounds, "parsers": rows}


def growth(make: Callable[[int], str], sizes: list[int], parser: object) -> list[dict[str, float]]:
    """CPU time of our parser for growing documents; the ratio of neighbours shows the order."""
    from llama_index.core import Document

    rows: list[dict[str, float]] = []
    for size in sizes:
        document = Document(text=make(size), id_="benchmark")
        milliseconds = min(
            cpu_ms(lambda d=document: parser.get_nodes_from_documents([d]))  # type: ignore[attr-defined, misc]
            for _ in range(2)
        )
        row = {"size": float(size), "ms": milliseconds}
        if rows:
            row["times_the_half"] = milliseconds / rows[-1]["ms"]
        rows.append(row)
    return rows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--quick", action="store_true", help="small documents, few rounds")
    quick = options.parse_args().quick
    with tempfile.TemporaryDirectory() as folder:
        copy_nltk_data(Path(folder) / "nltk")
        run(quick=quick)


def run(*, quick: bool) -> None:
    parsers = contenders("cl100k_base")
    ours = parsers["StructureNodeParser"]
    rounds = 2 if quick else 5
    size = 200_000 if quick else 1_000_000
    warm = "# Warm\n\n" + prose(5_000)
    compare(warm, parsers, 1)
    figures: dict[str, object] = {
        "unit": "CPU ms, one process",
        "chunk_size": 256,
        "tokenizer": "cl100k_base for all",
        "headings": compare(headings(2_000 if quick else 10_000), parsers, rounds),
        "prose": compare(prose(size), parsers, rounds),
        "mixed": compare(mixed(size), parsers, rounds),
        "unbroken_line": compare("x1" * (50_000 if quick else 100_000), parsers, 1),
        "growth": {
            "headings": growth(headings, [1_000, 2_000, 4_000, 8_000], ours),
            "prose": growth(prose, [size // 4, size // 2, size, 2 * size], ours),
            "unbroken_line": growth(lambda n: "x1" * (n // 2), [size // 4, size // 2, size], ours),
        },
    }
    for name in ("headings", "prose", "mixed", "unbroken_line"):
        print(name)
        for parser, row in figures[name]["parsers"].items():  # type: ignore[index]
            print(
                f"  {parser:22} {row['mb_per_s']:8.2f} MB/s  {row['nodes']:6} nodes  "
                f"{row['times_slower_than_ours']:6.1f} x our time"
            )
    for name, rows in figures["growth"].items():  # type: ignore[attr-defined]
        ratios = ", ".join(f"{row['times_the_half']:.2f}" for row in rows[1:])
        print(f"growth of {name}: doubling takes {ratios} times as long")
    if quick:
        print("Quick run: nothing written.")
        return
    print(f"Written to {save('parser', figures, 'markdown-it-py', 'tiktoken')}")


if __name__ == "__main__":
    main()
