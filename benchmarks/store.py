# ruff: noqa: E402 - the number of threads must be set before the libraries are imported
"""The embedded store beside LlamaIndex's defaults and the raw libraries -> results/store.json.

    python -m benchmarks.store                    100k chunks of 384 dimensions
    python -m benchmarks.store --quick            5k, nothing written
    python -m benchmarks.store --million          memory, recall and speed at a million
    python -m benchmarks.store --vectors X.npy    real embeddings in place of synthetic ones

CPU time of one process, contenders in turns, medians; FAISS and numpy held to one thread. Queries
are held out; recall is counted against an exact float32 product.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import faiss
import numpy as np
from llama_index.core import QueryBundle, VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import VectorStoreQuery
from llama_index.retrievers.bm25 import BM25Retriever

from benchmarks.common import save, side_by_side
from benchmarks.store_data import DIMENSION, Data, clustered, make, nodes, zipf_texts
from llama_index_hybrid_pack.indexing.stores.base import BM25, DENSE, SearchRequest
from llama_index_hybrid_pack.indexing.stores.local import LocalHybridStore
from llama_index_hybrid_pack.testing.builders import where

QUERIES = 200
Call = Callable[[int], object]


def turn(data: Data, call: Call) -> Callable[[], object]:
    """A contender that takes the next query at each call."""
    numbers = count()
    return lambda: call(next(numbers) % len(data.queries))


def exact(vectors: np.ndarray, query: np.ndarray, k: int) -> set[str]:
    scores = vectors @ query
    best = np.argpartition(-scores, min(k, len(scores) - 1))[:k]
    return {f"node-{number:07d}" for number in best}


def recall(data: Data, search: Callable[[np.ndarray], list[str]], k: int = 100) -> float:
    shares = [
        len(set(search(query)) & exact(data.vectors, query, k)) / min(k, len(data.vectors))
        for query in data.queries
    ]
    return float(np.mean(shares))


def dense_request(data: Data, number: int, **options: object) -> SearchRequest:
    return SearchRequest(query_embedding=data.queries[number], dense_top_k=100, **options)


def dense(data: Data, store: LocalHybridStore, simple: SimpleVectorStore, rounds: int) -> dict:
    raw = faiss.IndexScalarQuantizer(
        data.vectors.shape[1], faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    )
    raw.train(data.vectors)
    raw.add(data.vectors)
    lists = [query.tolist() for query in data.queries]
    tenant = where("tenant", "t7")

    def builtin(number: int) -> object:
        return simple.query(VectorStoreQuery(query_embedding=lists[number], similarity_top_k=100))

    quick = side_by_side(
        {
            "ours": turn(data, lambda n: store.search(dense_request(data, n))),
            "faiss_sq8": turn(data, lambda n: raw.search(data.queries[n : n + 1], 100)),
            "numpy": turn(data, lambda n: np.argpartition(data.vectors @ data.queries[n], -100)),
            "ours_filtered": turn(
                data, lambda n: store.search(dense_request(data, n, filters=tenant))
            ),
            "ours_filtered_cold": turn(
                data,
                lambda n: store.search(
                    dense_request(data, n, filters=where("tenant", f"t{n % 100}"))
                ),
            ),
        },
        rounds=rounds,
        warmup=3,
    )
    slow = side_by_side({"simple_vector_store": turn(data, builtin)}, rounds=5)
    times = quick | slow
    of_tenant = [number for number in range(len(data.vectors)) if number % 100 == 7]
    right = [
        {
            f"node-{of_tenant[place]:07d}"
            for place in np.argsort(-(data.vectors[of_tenant] @ query))[:100]
        }
        for query in data.queries[:50]
    ]
    filtered = [
        store.search(dense_request(data, number, filters=tenant)).legs[DENSE].ids
        for number in range(len(right))
    ]
    return {
        "cpu_ms": times,
        "speedup_over_simple_vector_store": times["simple_vector_store"] / times["ours"],
        "times_raw_faiss": times["ours"] / times["faiss_sq8"],
        "recall_at_100": recall(
            data,
            lambda query: (
                store.search(SearchRequest(query_embedding=query, dense_top_k=100)).legs[DENSE].ids
            ),
        ),
        "filter_1_percent": {
            "exact": all(set(ids) == best for ids, best in zip(filtered, right, strict=True)),
            "full_k": all(len(ids) == min(100, len(of_tenant)) for ids in filtered),
            "share_of_unfiltered_time": times["ours_filtered"] / times["ours"],
        },
    }


def lexical(data: Data, store: LocalHybridStore, theirs: BM25Retriever, rounds: int) -> dict:
    tenant = where("tenant", "t7")

    def request(number: int, **options: object) -> SearchRequest:
        return SearchRequest(query_str=data.query_texts[number], lexical_top_k=100, **options)

    with store.client.view(lexical=True) as view:
        index = view.lexical
        analyzer = store.analyzer
        raw = [index._terms(analyzer.query_terms(text)) for text in data.query_texts]
        times = side_by_side(
            {
                "ours": turn(data, lambda n: store.search(request(n))),
                "ours_with_nodes": turn(
                    data, lambda n: (found := store.search(request(n))).nodes(found.legs[BM25].ids)
                ),
                "ours_filtered": turn(data, lambda n: store.search(request(n, filters=tenant))),
                "tantivy": turn(
                    data, lambda n: index._searcher.search(raw[n], limit=100, count=False).hits
                ),
                "bm25_retriever": turn(data, lambda n: theirs.retrieve(data.query_texts[n])),
            },
            rounds=rounds,
            warmup=3,
        )
    return {
        "cpu_ms": times,
        "speedup_over_bm25_retriever": times["bm25_retriever"] / times["ours"],
        "speedup_with_nodes": times["bm25_retriever"] / times["ours_with_nodes"],
        "times_raw_tantivy": times["ours"] / times["tantivy"],
    }


def whole_query(
    data: Data,
    store: LocalHybridStore,
    index: VectorStoreIndex,
    theirs: BM25Retriever,
    rounds: int,
) -> dict:
    """Dense 100 + BM25 100 + fusion + 30 nodes, the query vector given."""
    fusion = QueryFusionRetriever(
        [index.as_retriever(similarity_top_k=100), theirs],
        llm=MockLLM(),
        num_queries=1,
        use_async=False,
        mode="relative_score",
        similarity_top_k=30,
    )
    lists = [query.tolist() for query in data.queries]

    def ours(number: int) -> object:
        return store.query(
            VectorStoreQuery(
                query_embedding=lists[number],
                query_str=data.query_texts[number],
                mode="hybrid",
                similarity_top_k=100,
                sparse_top_k=100,
                hybrid_top_k=30,
            )
        )

    times = side_by_side({"ours": turn(data, ours)}, rounds=rounds, warmup=3)
    times |= side_by_side(
        {
            "llama_index": turn(
                data,
                lambda n: fusion.retrieve(
                    QueryBundle(data.query_texts[n], embedding=list(lists[n]))
                ),
            )
        },
        rounds=5,
    )
    return {"cpu_ms": times, "speedup": times["llama_index"] / times["ours"]}


def reopening(path: Path) -> dict:
    """CPU seconds of opening and of the first search on both legs, beyond imports."""
    script = (
        "import sys, time\n"
        "import faiss, tantivy, numpy as np\n"
        "from llama_index_hybrid_pack.indexing.stores.base import SearchRequest\n"
        "from llama_index_hybrid_pack.indexing.stores.local import LocalHybridStore\n"
        "start = time.process_time()\n"
        "store = LocalHybridStore(sys.argv[1])\n"
        "opened = time.process_time()\n"
        "with store.client.view() as view:\n"
        "    query = np.ones(view.settings.dimension)\n"
        "store.search(SearchRequest(query_embedding=query, query_str='word'))\n"
        "print(opened - start, time.process_time() - start)\n"
    )
    runs = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", script, str(path)], check=True, capture_output=True, text=True
        )
        runs.append([float(part) for part in done.stdout.split()])
    opened, searched = np.median(runs, axis=0)
    return {"open_cpu_s": opened, "open_and_first_search_cpu_s": searched}


def timed(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def run(size: int, rounds: int, real: Path | None, folder: Path) -> dict:
    data = make(size, QUERIES, real)
    listed = nodes(data)
    path = folder / "store"
    with LocalHybridStore(path) as store:
        ingest = timed(lambda: store.add(listed))
        single = [timed(lambda node=node: store.add([node])) for node in listed[:20]]
        store.optimize()
        disk = store.describe()["bytes_on_disk"]
    start = time.process_time()
    index = VectorStoreIndex(nodes=listed, embed_model=MockEmbedding(embed_dim=DIMENSION))
    indexed = time.process_time()
    theirs = BM25Retriever.from_defaults(nodes=listed, similarity_top_k=100)
    building = {
        "ours_cpu_s": ingest,
        "ours_single_upsert_cpu_ms": 1000 * float(np.median(single)),
        "vector_store_index_cpu_s": indexed - start,
        "bm25_retriever_cpu_s": time.process_time() - indexed,
    }
    with LocalHybridStore(path) as store:
        return {
            "nodes": len(listed),
            "vectors": "synthetic" if real is None else real.name,
            "ingest": building,
            "bytes_on_disk": disk,
            "reopen": reopening(path),
            "dense": dense(data, store, index.vector_store, rounds),
            "bm25": lexical(data, store, theirs, rounds),
            "query": whole_query(data, store, index, theirs, rounds),
        }


def memory() -> dict[str, float]:
    """Resident MiB of this process: its own, and mapped from files."""
    fields = dict(
        line.split(":", 1)
        for line in Path("/proc/self/status").read_text().splitlines()
        if ":" in line
    )
    return {
        "own_mib": int(fields["RssAnon"].split()[0]) / 1024,
        "mapped_mib": int(fields["RssFile"].split()[0]) / 1024,
    }


def million(size: int, folder: Path) -> dict:
    """Build in batches, then measure memory, recall and speed of a process that opens the store."""
    path = folder / "store"
    batch = 20_000
    start = time.process_time()
    with LocalHybridStore(path, inverted_above=None) as store:
        for first in range(0, size, batch):
            vectors = clustered(batch, seed=1000 + first)
            part = Data(vectors, vectors, zipf_texts(batch, seed=2000 + first), [])
            store.add(nodes(part, first))
    build = time.process_time() - start
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.store", "--measure", str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    return {"nodes": size, "build_cpu_s": build, **json.loads(result.stdout)}


def measure(path: Path) -> dict:
    queries = clustered(30, seed=2)
    before = memory()
    store = LocalHybridStore(path, inverted_above=None)
    opened = timed(
        lambda: store.search(SearchRequest(query_embedding=queries[0], query_str="word"))
    )
    after = memory()
    with store.client.view(dense=True) as view:
        mapped = view.dense.mapped
        right = []
        for query in queries:
            scores = np.concatenate(
                [
                    mapped.vectors[start : start + 50_000] @ query
                    for start in range(0, len(mapped.rows), 50_000)
                ]
            )
            right.append(set(np.argpartition(-scores, 100)[:100].tolist()))
        ids = view.snapshot.node_ids
        named = [
            set(ids([int(mapped.rows[place]) for place in places]).values()) for places in right
        ]
    shares, times = [], []
    for query, best in zip(queries, named, strict=True):
        request = SearchRequest(query_embedding=query, dense_top_k=100)
        start = time.process_time()
        found = store.search(request).legs[DENSE].ids
        times.append(time.process_time() - start)
        shares.append(len(best & set(found)) / 100)
    raw = store.client.dense._view.codes._index
    faiss.omp_set_num_threads(1)
    plain = [timed(lambda query=query: raw.search(query[None], 100)) for query in queries]
    return {
        "first_search_cpu_s": opened,
        "added_memory": {name: after[name] - before[name] for name in after},
        "codes_mib": store.describe()["dense"]["bytes_in_memory"] / 2**20,
        "recall_at_100": float(np.mean(shares)),
        "dense_100_cpu_ms": 1000 * float(np.median(times)),
        "faiss_sq8_cpu_ms": 1000 * float(np.median(plain)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="5k chunks, nothing written")
    parser.add_argument("--million", action="store_true", help="measure a million chunks as well")
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--vectors", type=Path, help="real embeddings, a .npy of shape (n, d)")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    size = 5_000 if arguments.quick else arguments.size
    with tempfile.TemporaryDirectory() as folder:
        figures: dict[str, object] = run(
            size, 10 if arguments.quick else arguments.rounds, arguments.vectors, Path(folder)
        )
    if arguments.million:
        with tempfile.TemporaryDirectory() as folder:
            figures["million"] = million(40_000 if arguments.quick else 1_000_000, Path(folder))
    print(json.dumps(figures, indent=2))
    if not arguments.quick:
        name = "store" if arguments.vectors is None else "store_real_vectors"
        save(name, figures, "faiss-cpu", "tantivy", "llama-index-retrievers-bm25")


if __name__ == "__main__":
    main()
