"""Nodes as the table keeps them, and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    IndexNode,
    MetadataMode,
    Node,
    TextNode,
)
from numpy.typing import NDArray

from llama_index_hybrid_pack.errors import ConfigError, EmbeddingError

_CLASSES: dict[str, type[BaseNode]] = {
    kind.class_name(): kind
    for kind in (TextNode, IndexNode, ImageNode, ImageDocument, Document, Node)
}
#: Fields that a node class writes beside the ones it can be built from.
_LEFT_OUT = {"embedding", "text"}
_SHOWN = 10


class Record(NamedTuple):
    """A node ready for the table."""

    node_id: str
    doc_id: str | None
    payload: bytes
    vector: bytes
    metadata: dict[str, Any]
    text: str
    """Text for the lexical index: what an embedding model is given."""


def encode(nodes: Sequence[BaseNode], vectors: NDArray[np.float32]) -> list[Record]:
    """Turn nodes into records.

    Args:
        nodes: Nodes of LlamaIndex's own classes, or of a subclass that adds no field.
        vectors: Their vectors, shape ``(len(nodes), dimension)``.

    Raises:
        ConfigError: If a node cannot be stored without loss.
    """
    records = []
    for node, vector in zip(nodes, vectors, strict=True):
        node_id, doc_id = _checked_ids(node)
        payload, metadata = _dump(node)
        record = Record(node_id, doc_id, payload, vector.tobytes(), metadata, embedded_text(node))
        records.append(record)
    return records


def decode(payload: bytes, vector: bytes | None = None) -> BaseNode:
    """Build a new node from what the table keeps.

    Args:
        payload: The stored node.
        vector: Its stored vector, if the node is to carry it.
    """
    fields = json.loads(payload)
    name = fields.pop("class_name", "TextNode")
    if vector is not None:
        fields["embedding"] = np.frombuffer(vector, dtype=np.float32).tolist()
    if name == "TextNode":
        return TextNode(**fields)
    return _CLASSES[name].from_dict(fields)


def embedded_text(node: BaseNode) -> str:
    """Return the text by which a node is searched."""
    return node.get_content(metadata_mode=MetadataMode.EMBED)


def content(node: BaseNode) -> bytes:
    """Return a node's stored form, for comparing two nodes of one id."""
    embedding = () if node.embedding is None else node.embedding
    return _dump(node)[0] + np.asarray(embedding, dtype=np.float64).tobytes()


def read_vectors(nodes: Sequence[BaseNode], dimension: int | None) -> NDArray[np.float32]:
    """Read and check the embeddings of nodes.

    Args:
        nodes: At least one node.
        dimension: Length that every vector must have; ``None`` takes the first one's.

    Returns:
        Shape ``(len(nodes), dimension)``.

    Raises:
        EmbeddingError: If a vector is missing, of another length, or not finite.
    """
    if dimension is None:
        first = nodes[0].embedding
        dimension = 0 if first is None else len(first)
    try:
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite
            vectors = np.array([node.embedding for node in nodes], dtype=np.float32)
    except (TypeError, ValueError):
        vectors = np.zeros((0, 0), dtype=np.float32)
    if dimension and vectors.shape == (len(nodes), dimension) and np.isfinite(vectors).all():
        return vectors
    raise _bad_vectors(nodes, dimension)


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale rows to length 1; a zero vector stays zero, so that its cosine is 0.

    Args:
        vectors: Shape ``(n, dimension)``, finite.
    """
    wide = vectors.astype(np.float64)
    # By the largest value first: squares of large or tiny float32 values stay in range.
    wide /= np.maximum(np.abs(wide).max(axis=1, keepdims=True, initial=0.0), 1e-300)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    wide /= np.maximum(lengths, 1e-300)[:, None]
    return wide.astype(np.float32)


def _bad_vectors(nodes: Sequence[BaseNode], dimension: int) -> EmbeddingError:
    missing, lengths, not_finite = [], {}, []
    for node in nodes:
        if node.embedding is None or len(node.embedding) == 0:
            missing.append(node.node_id)
        elif len(node.embedding) != dimension:
            lengths[node.node_id] = len(node.embedding)
        elif not _fits_float32(node.embedding):
            not_finite.append(node.node_id)
    problems = []
    if missing:
        problems.append(f"no embedding: {listed(missing)}")
    if lengths:
        found = ", ".join(map(str, sorted(set(lengths.values()))))
        problems.append(f"dimension {found} instead of {dimension}: {listed(list(lengths))}")
    if not_finite:
        problems.append(f"NaN or infinite values: {listed(not_finite)}")
    return EmbeddingError(
        f"Nothing was written, because of these nodes: {'; '.join(problems)}. Every node needs a "
        "finite vector of the store's dimension. For another embedding model make a new store and "
        "ingest the documents again."
    )


def _fits_float32(embedding: Sequence[float]) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.asarray(embedding, dtype=np.float32)).all())


def listed(ids: Sequence[str]) -> str:
    """Return ids for a message, the first ten of them."""
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(repr(node_id) for node_id in ids[:_SHOWN]) + more


def _dump(node: BaseNode) -> tuple[bytes, dict[str, Any]]:
    name = _stored_class(type(node))
    try:
        fields = node.model_dump(mode="json", exclude_defaults=True, exclude=_LEFT_OUT_OF[name])
        fields["class_name"] = name
        # A lone surrogate, as some PDF readers give, is kept and comes back as it was.
        payload = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode(
            "utf-8", "surrogatepass"
        )
    except (TypeError, ValueError) as error:
        msg = (
            f"Node {node.node_id!r} cannot be stored: {error}. Metadata may hold texts, numbers, "
            "booleans, dates, lists and dicts of these."
        )
        raise ConfigError(msg) from error
    return payload, fields.get("metadata") or {}


_LEFT_OUT_OF = {
    name: _LEFT_OUT if issubclass(kind, Node) else {"embedding"} for name, kind in _CLASSES.items()
}


@lru_cache(maxsize=64)
def _stored_class(kind: type[BaseNode]) -> str:
    for base in kind.__mro__:
        for name, known in _CLASSES.items():
            if base is known and not set(kind.model_fields) - set(known.model_fields):
                return name
    known_names = ", ".join(_CLASSES)
    msg = (
        f"Nodes of class {kind.__qualname__} cannot be stored without losing fields. Give one of "
        f"{known_names}, or put the extra fields into the metadata."
    )
    raise ConfigError(msg)


def is_storable_id(text: str) -> bool:
    """Return whether SQLite can keep and find a node or document id."""
    if not text or "\x00" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _checked_ids(node: BaseNode) -> tuple[str, str | None]:
    document = node.ref_doc_id
    for name, value in (("id", node.node_id), ("document id", document)):
        if value is not None and not is_storable_id(value):
            msg = (
                f"The {name} {value!r} of node {node.node_id!r} cannot be stored. Give a text that "
                "is not empty and holds neither NUL characters nor lone surrogates."
            )
            raise ConfigError(msg)
    return node.node_id, document
