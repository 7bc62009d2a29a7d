"""Synthetic data of the store's benchmark: clustered unit vectors, Zipf text, identifiers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

DIMENSION = 384
CLUSTERS = 2000
VOCABULARY = 20_000
TENANTS = 100


@dataclass(frozen=True)
class Data:
    vectors: np.ndarray
    queries: np.ndarray
    texts: list[str]
    query_texts: list[str]


def clustered(count: int, *, seed: int, centres_seed: int = 0) -> np.ndarray:
    """Unit vectors around 2,000 centres, with a decaying spectrum as embeddings have."""
    spectrum = (1.0 / np.sqrt(1.0 + np.arange(DIMENSION) / 20.0)).astype(np.float32)
    centres = np.random.default_rng(centres_seed).standard_normal((CLUSTERS, DIMENSION))
    rng = np.random.default_rng(seed)
    vectors = np.empty((count, DIMENSION), dtype=np.float32)
    for start in range(0, count, 50_000):
        size = min(50_000, count - start)
        noise = rng.standard_normal((size, DIMENSION), dtype=np.float32)
        block = (centres[rng.integers(0, CLUSTERS, size)] + 0.6 * noise) * spectrum
        vectors[start : start + size] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return vectors


def pseudo_word(number: int) -> str:
    """A word of syllables, so that the analyzer sees words and not identifiers."""
    word, rest = "", number + 400
    while rest:
        rest, syllable = divmod(rest, 95)
        word += "bcdfghjklmnprstvwxz"[syllable // 5] + "aeiou"[syllable % 5]
    return word + "n"


def zipf_texts(count: int, *, seed: int, words: int = 90) -> list[str]:
    """Texts of Zipf-distributed words, half to one and a half times ``words`` long.

    One in twenty holds an error code.
    """
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, VOCABULARY + 1)
    vocabulary = np.array([pseudo_word(number) for number in range(VOCABULARY)])
    cumulative = np.cumsum(weights / weights.sum())
    texts = []
    for start in range(0, count, 10_000):
        size = min(10_000, count - start)
        chosen = np.searchsorted(cumulative, rng.random((size, words * 3 // 2)))
        lengths = rng.integers(words // 2, words * 3 // 2, size)
        for row, line in enumerate(vocabulary[np.minimum(chosen, VOCABULARY - 1)], start):
            code = f" E-{row % 5000}" if row % 20 == 0 else ""
            texts.append(" ".join(line[: lengths[row - start]]) + code)
    return texts


def make(count: int, queries: int, real: Path | None = None) -> Data:
    """Data of ``count`` chunks; vectors from a ``.npy`` of real embeddings where one is given."""
    if real is None:
        vectors, asked = clustered(count, seed=1), clustered(queries, seed=2)
    else:
        loaded = np.load(real).astype(np.float32)
        loaded /= np.linalg.norm(loaded, axis=1, keepdims=True)
        rng = np.random.default_rng(3)
        order = rng.permutation(len(loaded))
        asked = loaded[order[:queries]]
        vectors = loaded[order[queries : queries + count]]
    texts = zipf_texts(len(vectors), seed=4)
    rng = np.random.default_rng(5)
    query_texts = []
    for number in range(queries):
        words = texts[int(rng.integers(len(texts)))].split()
        chosen = [words[int(place)] for place in rng.integers(0, len(words), 8)]
        query_texts.append(" ".join(chosen + ([f"E-{20 * number}"] if number % 2 else [])))
    return Data(vectors, asked, texts, query_texts)


def nodes(data: Data, first: int = 0) -> list[TextNode]:
    """One node per chunk, numbered from ``first``; ten per document, one of 100 tenants each."""
    return [
        TextNode(
            id_=f"node-{number:07d}",
            text=text,
            embedding=vector.tolist(),
            metadata={"tenant": f"t{number % TENANTS}", "year": 2000 + number % 25},
            excluded_embed_metadata_keys=["tenant", "year"],
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"doc-{number // 10}")},
        )
        for number, (text, vector) in enumerate(zip(data.texts, data.vectors, strict=True), first)
    ]
