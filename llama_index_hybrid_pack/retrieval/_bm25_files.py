"""A BM25 index on disk: one file that is replaced as a whole."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import uuid
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from llama_index.core.constants import DATA_KEY, TYPE_KEY
from llama_index.core.schema import BaseNode, ObjectType, TextNode
from llama_index.core.storage.docstore.utils import json_to_doc
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)
from pydantic import ValidationError

from llama_index_hybrid_pack.errors import (
    StoreCorruptError,
    StoreError,
    StoreVersionError,
    StoreWriteError,
)
from llama_index_hybrid_pack.retrieval._bm25_segment import Segment

#: Name of the file inside the folder; a zip of arrays, readable with ``numpy.load``.
FILE_NAME = "identifier_bm25.npz"
FORMAT = "llama-index-hybrid-pack/bm25"
FORMAT_VERSION = 1
#: Settings that the header holds; without one of them the file is not whole.
SETTINGS = frozenset(
    {"analyzer", "analyzer_fingerprint", "similarity_top_k", "k1", "b", "filters"}
    | {"metadata_mode", "verbose", "generation"}
)
#: What LlamaIndex's own retriever leaves in its folder.
_FOREIGN_FILE = "retriever.json"
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, RuntimeError),
    *(KeyError, ValueError, TypeError, IndexError, AttributeError),
)


def _text(value: str) -> Any:
    return np.frombuffer(value.encode("utf-8"), dtype=np.uint8)


def write(folder: str | Path, segment: Segment, settings: Mapping[str, Any]) -> None:
    """Write the index so that a crash at any moment leaves the old file or the new one.

    Args:
        folder: Made when it is not there; other files in it are left alone.
        segment: The whole content.
        settings: JSON-able settings of the retriever.

    Raises:
        StoreWriteError: If the file cannot be written; the previous one is intact.
        StoreError: If a node cannot be written as JSON.
    """
    path = Path(folder)
    try:
        lines = [f"{_kind(node)} {json.dumps(node.to_dict())}" for node in segment.nodes]
    except (TypeError, ValueError) as error:
        msg = f"A node's metadata cannot be written as JSON: {error}. Nothing was written."
        raise StoreError(msg) from error
    header = {"format": FORMAT, "version": FORMAT_VERSION, "settings": dict(settings)}
    temporary = path / f".{FILE_NAME}.{uuid.uuid4().hex}.tmp"
    try:
        path.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            np.savez(
                file,
                header=_text(json.dumps(header)),
                nodes=_text("\n".join(lines)),
                vocabulary=_text("\n".join(segment.vocabulary)),
                lengths=segment.lengths,
                starts=segment.starts,
                docs=segment.docs,
                counts=segment.counts,
            )
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path / FILE_NAME)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        msg = (
            f"The index cannot be written to {str(path)!r}: {error}. What was there before is "
            "intact. Check the free space and the permissions."
        )
        raise StoreWriteError(msg) from error


def read(folder: str | Path) -> tuple[Segment, dict[str, Any]]:
    """Read what :func:`write` wrote.

    Args:
        folder: The folder.

    Returns:
        The content and the settings.

    Raises:
        StoreCorruptError: If the folder holds no index of this package, or a damaged one.
        StoreVersionError: If a newer version of this package wrote it.
    """
    path = Path(folder) / FILE_NAME
    if not path.is_file():
        raise StoreCorruptError(_missing(Path(folder)))
    try:
        # Opened here: numpy leaves a file open that it fails to read.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            header = json.loads(_string(arrays["header"]))
            _check_header(header, path)
            lines = _string(arrays["nodes"]).split("\n") if arrays["nodes"].size else []
            terms = _string(arrays["vocabulary"]).split("\n") if arrays["vocabulary"].size else []
            segment = Segment(
                nodes=tuple(_node(line) for line in lines),
                lengths=arrays["lengths"],
                vocabulary={term: row for row, term in enumerate(terms)},
                starts=arrays["starts"],
                docs=arrays["docs"],
                counts=arrays["counts"],
            )
        _check_shapes(segment)
    except StoreVersionError:  # a RuntimeError too, but no damage
        raise
    except _DAMAGE as error:
        msg = (
            f"{str(path)!r} is damaged ({type(error).__name__}: {error}). Build the retriever "
            "again from its nodes and persist it."
        )
        raise StoreCorruptError(msg) from error
    return segment, cast("dict[str, Any]", header["settings"])


def _missing(folder: Path) -> str:
    if (folder / _FOREIGN_FILE).is_file():
        return (
            f"{str(folder)!r} was written by LlamaIndex's BM25Retriever, which keeps neither its "
            "tokenizer nor its node texts' settings. Load it there, or build "
            "IdentifierBM25Retriever from the nodes and persist that."
        )
    return (
        f"{str(folder)!r} holds no {FILE_NAME}: nothing was persisted there. Give the folder that "
        "IdentifierBM25Retriever.persist() was given."
    )


def _check_header(header: Any, path: Path) -> None:
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        msg = f"the header names no {FORMAT}"
        raise ValueError(msg)
    if not isinstance(header["version"], int) or header["version"] > FORMAT_VERSION:
        msg = (
            f"{str(path)!r} has format version {header['version']!r}; this package reads up to "
            f"{FORMAT_VERSION}. Update llama-index-hybrid-pack."
        )
        raise StoreVersionError(msg)
    if set(header["settings"]) != SETTINGS:
        msg = f"the header's settings are {sorted(header['settings'])}"
        raise ValueError(msg)


def _check_shapes(segment: Segment) -> None:
    """Arrays that fit each other: a wrong one would give wrong hits, not an error."""
    n_postings = len(segment.docs)
    fits = (
        len(segment.lengths) == len(segment.nodes)
        and len(segment.starts) == len(segment.vocabulary) + 1
        and len(segment.counts) == n_postings
        and segment.starts[0] == 0
        and segment.starts[-1] == n_postings
        and bool((np.diff(segment.starts) >= 0).all())
        and (n_postings == 0 or 0 <= segment.docs.min() <= segment.docs.max() < len(segment.nodes))
    )
    if not fits:
        msg = "its arrays do not fit each other"
        raise ValueError(msg)


def _string(value: Any) -> str:
    return cast("str", value.tobytes().decode("utf-8"))


def _kind(node: BaseNode) -> str:
    return str(ObjectType(node.get_type()).value)


def _node(line: str) -> BaseNode:
    kind, _, data = line.partition(" ")
    if kind == str(ObjectType.TEXT.value):
        try:  # a third of the time of the general way, which stays for what this one refuses
            return TextNode.model_validate_json(data)
        except ValidationError:
            pass
    return json_to_doc({TYPE_KEY: kind, DATA_KEY: json.loads(data)})


def filters_to_dict(filters: MetadataFilters | None) -> dict[str, Any] | None:
    """Return a filter as JSON-able values."""
    if filters is None:
        return None
    members: list[dict[str, Any]] = []
    for item in filters.filters:
        if isinstance(item, MetadataFilters):
            members.append(cast("dict[str, Any]", filters_to_dict(item)))
        else:
            members.append({"key": item.key, "operator": item.operator.value, "value": item.value})
    condition = filters.condition or FilterCondition.AND
    return {"condition": condition.value, "filters": members}


def filters_from_dict(data: Mapping[str, Any] | None) -> MetadataFilters | None:
    """Return the filter that :func:`filters_to_dict` was given."""
    if data is None:
        return None
    members: list[MetadataFilter | MetadataFilters] = []
    for item in data["filters"]:
        if "filters" in item:
            members.append(cast("MetadataFilters", filters_from_dict(item)))
        else:
            # model_construct: a filter that was validated may hold what pydantic's union refuses.
            members.append(
                MetadataFilter.model_construct(
                    key=item["key"],
                    operator=FilterOperator(item["operator"]),
                    value=item["value"],
                )
            )
    return MetadataFilters.model_construct(
        filters=members, condition=FilterCondition(data["condition"])
    )
