"""Corpora, questions and vectors of the quality benchmark; vectors are kept in a cache folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from llama_index.core.schema import BaseNode, Document, MetadataMode, TextNode

from llama_index_hybrid_pack.chunking.structure import StructureNodeParser
from llama_index_hybrid_pack.evaluation.golden_set import GoldenQuestion, GoldenSet, RelevantSpan
from llama_index_hybrid_pack.indexing.embedding import SentenceTransformerEmbedding

#: Name here → (folder, field of the question, kind of corpus).
SETS: dict[str, tuple[str, str, str]] = {
    "anthropic_docs": ("anthropic_docs", "text", "documents"),
    "anthropic_code": ("anthropic_code", "text", "documents"),
    "scifact": ("scifact", "text", "documents"),
    "squad2": ("squad2", "text", "documents"),
    "mtrag": ("mtrag", "text", "documents"),
    "mtrag, rewritten": ("mtrag", "rewrite", "documents"),
    "canard": ("canard", "text", "documents"),
    "canard, rewritten": ("canard", "rewrite", "documents"),
    "anthropic_docs, cut": ("anthropic_docs", "text", "pages"),
    "anthropic_code, cut": ("anthropic_code", "text", "pages"),
    "chroma, cut": ("chroma_chunking", "text", "pages"),
}
#: Sets that the defaults are chosen on, with their weight: the two mtrag sets count as one.
CHOOSING = {
    "anthropic_docs": 1.0,
    "anthropic_code": 1.0,
    "scifact": 1.0,
    "squad2": 1.0,
    "mtrag": 0.5,
    "mtrag, rewritten": 0.5,
}
#: canard has 2,277 questions; these many, by hash, were measured before.
_CANARD = 1_000


@dataclass(frozen=True)
class Corpus:
    """Nodes with vectors, questions in two halves, and the questions' vectors."""

    name: str
    nodes: list[TextNode]
    development: GoldenSet
    held_out: GoldenSet
    vectors: dict[str, list[float]]


class CachedEmbedder:
    """The embedding model behind a cache, so that no text is read by the model twice.

    Gives token vectors to late interaction like the model itself; they are kept in half precision.
    """

    def __init__(self, model: SentenceTransformerEmbedding, folder: Path) -> None:
        self.model = model
        self.folder = folder
        self._tokens: dict[tuple[str, bool], np.ndarray] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def key(self, kind: str, texts: Sequence[str]) -> Path:
        digest = hashlib.sha256(f"{self.model.model_name}\0{kind}".encode())
        for text in texts:
            digest.update(b"\0" + text.encode("utf-8", "surrogatepass"))
        return self.folder / f"{digest.hexdigest()[:32]}.npz"

    def vectors(self, texts: Sequence[str], *, is_query: bool) -> np.ndarray:
        path = self.key("query" if is_query else "text", texts)
        if not path.exists():
            embed = self.model._get_query_embedding if is_query else None
            rows = (
                [embed(text) for text in texts]
                if embed is not None
                else self.model.get_text_embedding_batch(list(texts), show_progress=True)
            )
            _write(path, vectors=np.array(rows, dtype=np.float32))
        return np.load(path)["vectors"]

    def load_tokens(self, texts: Sequence[str], *, is_query: bool) -> None:
        """Have the token vectors of these texts at hand, and of no others."""
        path = self.key("query tokens" if is_query else "text tokens", texts)
        if not path.exists():
            found = self.model.token_embeddings(texts, is_query=is_query)
            lengths = np.array([len(tokens) for tokens in found])
            _write(path, lengths=lengths, tokens=np.concatenate(found).astype(np.float16))
        stored = np.load(path)
        ends = np.cumsum(stored["lengths"])[:-1]
        self._tokens.update(
            zip(
                [(text, is_query) for text in texts],
                np.split(stored["tokens"], ends),
                strict=True,
            )
        )

    def forget_tokens(self) -> None:
        self._tokens.clear()

    def token_embeddings(self, texts: Sequence[str], *, is_query: bool) -> list[np.ndarray]:
        return [self._tokens[text, is_query].astype(np.float32) for text in texts]


def load(name: str, embedder: CachedEmbedder, data: Path, *, tokens: bool = True) -> Corpus:
    """Read a set; its nodes get their vectors, and late interaction its token vectors."""
    folder, field, kind = SETS[name]
    source = data / folder
    if kind == "pages":
        nodes = _cut(source, embedder.model)
        questions = _questions(source, field, _spans(source))
    else:
        nodes = [_whole(row) for row in _rows(source / "corpus.jsonl")]
        questions = _questions(source, field, _qrels(source))
    if folder == "canard":
        questions = sorted(questions, key=lambda question: _sha1(question.id))[:_CANARD]
    texts = [node.get_content(metadata_mode=MetadataMode.EMBED) for node in nodes]
    for node, vector in zip(nodes, embedder.vectors(texts, is_query=False), strict=True):
        node.embedding = vector.tolist()
    asked = [question.question for question in questions]
    vectors = embedder.vectors(asked, is_query=True).tolist()
    embedder.forget_tokens()
    if tokens:
        embedder.load_tokens(texts, is_query=False)
        embedder.load_tokens(asked, is_query=True)
    development, held_out = _halves(GoldenSet(questions))
    return Corpus(
        name=name,
        nodes=nodes,
        development=development,
        held_out=held_out,
        vectors=dict(zip([question.id for question in questions], vectors, strict=True)),
    )


def _halves(golden: GoldenSet) -> tuple[GoldenSet, GoldenSet]:
    """Split as the corpora say: scifact by its own field, the others by hash."""
    if any("split" in question.metadata for question in golden):
        parts = {
            name: GoldenSet(q for q in golden if q.metadata.get("split") == name)
            for name in ("train", "test")
        }
        return parts["train"], parts["test"]
    return golden.split()


def _questions(
    source: Path, field: str, relevant: dict[str, dict[str, object]]
) -> list[GoldenQuestion]:
    return [
        GoldenQuestion(
            id=row["id"],
            question=row[field],
            metadata={"split": row["split"]} if row.get("split") in {"train", "test"} else {},
            **relevant[row["id"]],
        )
        for row in _rows(source / "queries.jsonl")
        if row["id"] in relevant
    ]


def _qrels(source: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, int]] = {}
    for question, document, grade in _columns(source / "qrels.tsv"):
        found.setdefault(question, {})[document] = int(grade)
    return {question: {"relevant_nodes": items} for question, items in found.items()}


def _spans(source: Path) -> dict[str, dict[str, object]]:
    found: dict[str, list[RelevantSpan]] = {}
    for question, document, start, end in _columns(source / "spans.tsv"):
        span = RelevantSpan(document=document, start=int(start), end=int(end))
        found.setdefault(question, []).append(span)
    return {question: {"relevant_spans": tuple(items)} for question, items in found.items()}


def _cut(source: Path, model: SentenceTransformerEmbedding) -> list[TextNode]:
    pages = source / "documents.jsonl"
    rows = list(_rows(pages if pages.exists() else source / "corpus.jsonl"))
    documents = [
        Document(id_=row["id"], text=row["text"], metadata={"title": row.get("title") or row["id"]})
        for row in rows
    ]
    parser = StructureNodeParser.for_embed_model(model)
    nodes: list[BaseNode] = parser.get_nodes_from_documents(documents)
    return [_kept_apart(node) for node in nodes if isinstance(node, TextNode)]


def _whole(row: dict[str, str]) -> TextNode:
    return _kept_apart(TextNode(id_=row["id"], text=_titled(row)))


def _kept_apart(node: TextNode) -> TextNode:
    """Put the id into the metadata, unseen by models and by BM25.

    LlamaIndex's fusion takes nodes with equal text and metadata for one and adds up their scores.
    So its figures are the best that it can give.
    """
    node.metadata["id"] = node.node_id
    node.excluded_embed_metadata_keys.append("id")
    node.excluded_llm_metadata_keys.append("id")
    return node


def _titled(row: dict[str, str]) -> str:
    return f"{row['title']}\n{row['text']}" if row.get("title") else row["text"]


def _rows(path: Path) -> Iterable[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def _columns(path: Path) -> Iterable[list[str]]:
    with path.open(encoding="utf-8") as file:
        yield from (line.rstrip("\n").split("\t") for line in file)


def _sha1(name: str) -> str:
    return hashlib.sha1(name.encode()).hexdigest()


def _write(path: Path, **arrays: np.ndarray) -> None:
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, **arrays)
    partial.replace(path)
