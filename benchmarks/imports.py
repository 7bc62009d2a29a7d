"""CPU seconds and memory of an import, each in a process of its own.

``python -m benchmarks.imports [--quick]``
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

from benchmarks.common import save

MODULES = {
    "llama_index_hybrid_pack": "import llama_index_hybrid_pack",
    "with HybridPack": "from llama_index_hybrid_pack import HybridPack",
    "llama_index.core": "import llama_index.core",
    "llama_index.core VectorStoreIndex": "from llama_index.core import VectorStoreIndex",
    "llama_index.retrievers.bm25": "from llama_index.retrievers.bm25 import BM25Retriever",
    "sentence_transformers": "import sentence_transformers",
}
PROBE = """
import time, resource
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
{statement}
seconds = time.process_time() - start
print(seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def measure(statement: str, rounds: int) -> dict[str, float]:
    runs = []
    for _ in range(rounds):
        probe = PROBE.format(statement=statement)
        done = subprocess.run(
            [sys.executable, "-c", probe], capture_output=True, text=True, check=True
        )
        runs.append([float(value) for value in done.stdout.split()])
    seconds, megabytes = zip(*runs, strict=True)
    return {
        "cpu_s": round(statistics.median(seconds), 3),
        "rss_mb": round(statistics.median(megabytes), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    figures = {}
    for name, statement in MODULES.items():
        figures[name] = measure(statement, 1 if quick else 5)
        print(f"{name:40} {figures[name]['cpu_s']:7.3f} s  {figures[name]['rss_mb']:7.1f} MB")
    if not quick:
        print(save("imports", {"imports": figures}))


if __name__ == "__main__":
    main()
