"""BM25 beside LlamaIndex's retriever and raw bm25s; quality of the analyzer on real questions.

    python -m benchmarks.bm25               10k and 100k documents -> results/bm25.json
    python -m benchmarks.bm25 --quick       2k documents, nothing written
    python -m benchmarks.bm25 --quality     nDCG@10 on the corpora -> results/bm25_quality.json
    python -m benchmarks.bm25 --analyzer    MB/s of the analyzer

CPU time of this process, contenders in turns. Documents are about 90 words of a Zipf
distribution; one in twenty holds an identifier; tenants are spread so that ``t7`` has 1 %.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import bm25s
import numpy as np
import Stemmer
from llama_index.core.schema import QueryBundle, TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from llama_index.retrievers.bm25 import BM25Retriever

from benchmarks.common import cpu_ms, save, side_by_side
from llama_index_hybrid_pack.indexing.analyzer import Analyzer
from llama_index_hybrid_pack.retrieval.bm25 import IdentifierBM25Retriever

SHARED = Path(os.environ.get("HYBRID_PACK_SHARED", Path(__file__).parents[2] / "shared"))
SETS = ("scifact", "anthropic_docs", "anthropic_code", "squad2")
STEMMER = Stemmer.Stemmer("english")


def corpus(size: int, seed: int = 0) -> list[TextNode]:
    """Synthetic nodes of about 90 words; one in a hundred belongs to tenant t7."""
    rng = np.random.default_rng(seed)
    words = np.array([_word(number) for number in range(60_000)], dtype=object)
    # Zipf-Mandelbrot with Mandelbrot's own shift for English.
    cumulated = np.cumsum(1.0 / (np.arange(len(words)) + 2.7))
    nodes = []
    for number in range(size):
        drawn = rng.random(rng.integers(60, 121)) * cumulated[-1]
        text = [*words[np.searchsorted(cumulated, drawn)]]
        if number % 20 == 0:
            text.insert(len(text) // 2, f"E-{number}")
        nodes.append(
            TextNode(
                id_=f"n{number:07d}",
                text=" ".join(text),
                metadata={"tenant": f"t{number % 100}"},
                excluded_embed_metadata_keys=["tenant"],
            )
        )
    return nodes


def _word(number: int) -> str:
    """A pronounceable word per number, so that stemming has something to do."""
    consonants, vowels = "bcdfghjklmnprstvwz", "aeiou"
    letters = []
    number += 1
    while number:
        number, digit = divmod(number, 90)
        letters.append(consonants[digit // 5] + vowels[digit % 5])
    return "".join(letters) + "n"


def questions(nodes: Sequence[TextNode], length: int = 8, count: int = 25) -> list[str]:
    """Words of one document per question; every fifth asks for an identifier too."""
    rng = np.random.default_rng(1)
    texts = []
    for number in range(count):
        node = nodes[int(rng.integers(len(nodes) // 20)) * 20]
        words = node.text.split()
        asked = [str(word) for word in rng.choice(words, length)]
        if number % 5 == 0:
            asked.append(next(word for word in words if word.startswith("E-")))
        texts.append(" ".join(asked))
    return texts


def _every(queries: Sequence[str], call: Callable[[str], object]) -> Callable[[], None]:
    def run() -> None:
        for query in queries:
            call(query)

    return run


def _tokens(texts: Sequence[str]) -> list[list[str]]:
    return bm25s.tokenize(
        list(texts), stopwords="en", stemmer=STEMMER, show_progress=False, return_ids=False
    )


def speed(size: int, rounds: int) -> dict[str, object]:
    """Build, query, filter, change, persist and load at one size; milliseconds of CPU."""
    nodes = corpus(size)
    queries = questions(nodes)
    made: dict[str, object] = {}

    def build_raw() -> None:
        made["raw"] = bm25s.BM25(method="lucene")
        made["raw"].index(_tokens([node.text for node in nodes]), show_progress=False)

    def build_theirs() -> None:
        made["theirs"] = BM25Retriever.from_defaults(
            nodes=nodes, stemmer=STEMMER, similarity_top_k=10
        )

    def build_ours() -> None:
        made["ours"] = IdentifierBM25Retriever(nodes, similarity_top_k=10)

    figures: dict[str, object] = {
        "build_ms": {
            "ours": cpu_ms(build_ours),
            "BM25Retriever": cpu_ms(build_theirs),
            "bm25s": cpu_ms(build_raw),
        }
    }
    ours, theirs, raw = made["ours"], made["theirs"], made["raw"]
    for label, length, k in (("query_k10", 8, 10), ("query_k100", 8, 100), ("long_k10", 60, 10)):
        asked = questions(nodes, length)
        ours.similarity_top_k = theirs.similarity_top_k = k
        total = side_by_side(
            {
                "ours": _every(asked, lambda text: ours._retrieve(QueryBundle(text))),
                "ours, ids only": _every(
                    asked,
                    lambda text, k=k: ours._index.snapshot.search(
                        ours.analyzer.query_terms(text), k, None
                    ),
                ),
                "BM25Retriever": _every(asked, lambda text: theirs._retrieve(QueryBundle(text))),
                "bm25s": _every(
                    asked,
                    lambda text, k=k: raw.retrieve(_tokens([text]), k=k, show_progress=False),
                ),
            },
            rounds=rounds,
        )
        figures[f"{label}_ms"] = {name: ms / len(asked) for name, ms in total.items()}
    ours.similarity_top_k = theirs.similarity_top_k = 100
    tenant = MetadataFilters(filters=[MetadataFilter(key="tenant", value="t7")])
    theirs.corpus_weight_mask = [int(node.metadata["tenant"] == "t7") for node in nodes]
    fresh = iter(range(10_000))

    def first_use() -> None:
        # A condition that no query used before, so that nothing is remembered.
        wish = MetadataFilters(
            filters=[
                MetadataFilter(key="tenant", value="t7"),
                MetadataFilter(key="none", operator="!=", value=next(fresh)),
            ]
        )
        ours.scoped(filters=wish)._retrieve(QueryBundle(queries[0]))

    total = side_by_side(
        {
            "ours": _every(
                queries, lambda text: ours.scoped(filters=tenant)._retrieve(QueryBundle(text))
            ),
            "BM25Retriever": _every(queries, lambda text: theirs._retrieve(QueryBundle(text))),
        },
        rounds=rounds,
    )
    figures["query_k100_filter_1_percent_ms"] = {
        **{name: ms / len(queries) for name, ms in total.items()},
        "ours, first use of the filter": side_by_side({"": first_use}, rounds=rounds)[""],
    }
    with tempfile.TemporaryDirectory() as folder:
        mine, other = Path(folder) / "ours", Path(folder) / "theirs"
        theirs.corpus_weight_mask = None
        figures["persist_ms"] = {
            "ours": cpu_ms(lambda: ours.persist(mine)),
            "BM25Retriever": cpu_ms(lambda: theirs.persist(str(other), show_progress=False)),
        }
        figures["load_ms"] = {
            "ours": cpu_ms(lambda: IdentifierBM25Retriever.from_persist_dir(mine)),
            "BM25Retriever": cpu_ms(lambda: BM25Retriever.from_persist_dir(str(other))),
        }
        figures["disk_mb"] = {
            name: sum(file.stat().st_size for file in path.iterdir()) / 1e6
            for name, path in (("ours", mine), ("BM25Retriever", other))
        }
    extra = [
        TextNode(id_=f"new{number}", text=node.text) for number, node in enumerate(nodes[:100])
    ]
    figures["change_ms"] = {
        "add 100": cpu_ms(lambda: ours.add(extra)),
        "add 1": cpu_ms(lambda: ours.add([TextNode(id_="one", text=nodes[0].text)])),
        "delete 10": cpu_ms(lambda: ours.delete([node.node_id for node in nodes[:10]])),
        "first query afterwards": cpu_ms(lambda: ours._retrieve(QueryBundle(queries[0]))),
    }
    return figures


def analyzer_speed() -> dict[str, float]:
    """MB of text per second of CPU, with an empty memory of tokens."""
    speeds = {}
    for name in SETS:
        texts = [text for _, text in _documents(name)]
        megabytes = sum(len(text.encode()) for text in texts) / 1e6
        analyzer = Analyzer()
        ms = cpu_ms(lambda texts=texts, analyzer=analyzer: [*map(analyzer.terms, texts)])
        baseline = cpu_ms(lambda texts=texts: _tokens(texts))
        speeds[name] = megabytes / ms * 1000.0
        speeds[f"{name}, bm25s.tokenize"] = megabytes / baseline * 1000.0
    return speeds


def _lines(name: str, file: str) -> list[str]:
    return (SHARED / "data" / name / file).read_text(encoding="utf-8").splitlines()


def _documents(name: str) -> list[tuple[str, str]]:
    rows = [json.loads(line) for line in _lines(name, "corpus.jsonl")]
    return [(row["id"], f"{row.get('title') or ''}\n{row['text']}".strip()) for row in rows]


def _is_development(name: str, query: dict[str, str]) -> bool:
    if name == "scifact":
        return query["split"] == "train"
    return int(hashlib.sha1(query["id"].encode()).hexdigest(), 16) % 2 == 0


def _ndcg(
    terms: Sequence[Sequence[str]],
    query_terms: Callable[[str], list[str]],
    ids: Sequence[str],
    queries: Sequence[dict[str, str]],
    qrels: dict[str, dict[str, int]],
) -> np.ndarray:
    index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    index.index(list(terms), show_progress=False)
    discount = 1.0 / np.log2(np.arange(2, 12))
    values = []
    for query in queries:
        known = [term for term in query_terms(query["text"]) if term in index.vocab_dict]
        relevant = qrels[query["id"]]
        gains = np.zeros(10)
        if known:
            scores = index.get_scores(known)
            best = [place for place in np.argsort(-scores, kind="stable")[:10] if scores[place] > 0]
            gains[: len(best)] = [relevant.get(ids[place], 0) for place in best]
        ideal = np.zeros(10)
        top = sorted(relevant.values(), reverse=True)[:10]
        ideal[: len(top)] = top
        values.append(float(gains @ discount / (ideal @ discount)))
    return np.array(values)


def _sign_flip(difference: np.ndarray, rounds: int = 10_000) -> float:
    """Two-sided p of the mean difference under random signs (paired randomisation test)."""
    changed = difference[difference != 0]
    if not len(changed):
        return 1.0
    signs = np.random.default_rng(0).choice([-1, 1], size=(rounds, len(changed)))
    extreme = np.abs(signs @ changed) >= abs(changed.sum()) - 1e-12
    return float((1 + extreme.sum()) / (rounds + 1))


def quality() -> dict[str, object]:
    """nDCG@10 of both tokenisations on development and held-out questions of four corpora."""
    analyzer = Analyzer()
    figures: dict[str, object] = {}
    for name in SETS:
        documents = _documents(name)
        ids = [doc_id for doc_id, _ in documents]
        qrels: dict[str, dict[str, int]] = {}
        for line in _lines(name, "qrels.tsv"):
            query_id, doc_id, grade = line.split("\t")[:3]
            if grade.isdigit() and int(grade) > 0:
                qrels.setdefault(query_id, {})[doc_id] = int(grade)
        asked = [json.loads(line) for line in _lines(name, "queries.jsonl")]
        asked = [query for query in asked if query["id"] in qrels]
        theirs = _tokens([text for _, text in documents])
        ours = [analyzer.terms(text) for _, text in documents]
        for split in ("development", "held_out"):
            chosen = [q for q in asked if _is_development(name, q) == (split == "development")]
            base = _ndcg(theirs, lambda text: _tokens([text])[0], ids, chosen, qrels)
            mine = _ndcg(ours, analyzer.query_terms, ids, chosen, qrels)
            figures[f"{name}/{split}"] = {
                "n": len(chosen),
                "baseline": float(base.mean()),
                "analyzer": float(mine.mean()),
                "difference": float((mine - base).mean()),
                "p": _sign_flip(mine - base),
            }
    return figures


def main() -> None:
    """Run what the arguments ask for and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--quality", action="store_true")
    parser.add_argument("--analyzer", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    if arguments.quality:
        figures = quality()
        save("bm25_quality", figures, "bm25s", "PyStemmer")
    elif arguments.analyzer:
        figures = analyzer_speed()
    elif arguments.quick:
        figures = {"2000": speed(2_000, rounds=3)}
    else:
        figures = {str(size): speed(size, rounds=11) for size in (10_000, 100_000)}
        save("bm25", figures, "bm25s", "llama-index-retrievers-bm25", "PyStemmer")
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
