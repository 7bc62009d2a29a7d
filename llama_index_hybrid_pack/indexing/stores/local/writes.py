"""The writes of the store, each one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from llama_index.core.schema import BaseNode
from tqdm.auto import tqdm

from llama_index_hybrid_pack.errors import ConfigError, StoreError
from llama_index_hybrid_pack.indexing.analyzer import Analyzer
from llama_index_hybrid_pack.indexing.filters import FieldType
from llama_index_hybrid_pack.indexing.stores.local.change import Change
from llama_index_hybrid_pack.indexing.stores.local.engine import Engine
from llama_index_hybrid_pack.indexing.stores.local.records import (
    content,
    decode,
    encode,
    listed,
    read_vectors,
)
from llama_index_hybrid_pack.indexing.stores.local.rowsets import RowSets
from llama_index_hybrid_pack.indexing.stores.local.settings import stored_schema

#: Nodes held in memory in their stored form at a time.
_BATCH = 1000
#: Writes of fewer nodes than this show no progress bar.
_LONG = 5000

T = TypeVar("T")


def apply(
    engine: Engine,
    nodes: Sequence[BaseNode],
    *,
    delete_node_ids: Sequence[str] = (),
    show_progress: bool = False,
) -> None:
    """Insert nodes, replacing those that have the same id, and remove others."""
    unique = _without_copies(nodes)

    def steps(change: Change) -> None:
        change.remove(list(change.snapshot.rows_of("node_id", delete_node_ids)))
        dimension = change.settings.dimension
        for batch in _batches(unique, show_progress=show_progress):
            vectors = read_vectors(batch, dimension)
            if dimension is None:
                dimension = vectors.shape[1]
                change.transaction.set_meta("dimension", json.dumps(dimension))
            ids = [node.node_id for node in batch]
            change.remove(list(change.snapshot.rows_of("node_id", ids)))
            change.insert(encode(batch, vectors))

    if unique or delete_node_ids:
        engine.write(steps)


def remove_document(engine: Engine, doc_id: str) -> None:
    """Remove the nodes of one document."""
    engine.write(lambda change: change.remove(list(change.snapshot.rows_of("doc_id", [doc_id]))))


def remove_matching(
    engine: Engine,
    row_sets: RowSets,
    node_ids: Sequence[str] | None,
    filters: Any,
) -> None:
    """Remove the nodes that are among the ids and pass the filter."""

    def steps(change: Change) -> None:
        found = row_sets.of(
            change.snapshot, change.settings.schema, filters=filters, node_ids=node_ids
        )
        if found is None:  # a filter without conditions is no restriction either
            msg = (
                "delete_nodes() needs node_ids or a filter that says something. To remove every "
                "node call clear()."
            )
            raise ConfigError(msg)
        change.remove(found.rows.tolist())

    engine.write(steps)


def clear(engine: Engine) -> None:
    """Remove every node; settings stay."""
    engine.write(lambda change: change.remove(change.snapshot.rows_after(0).tolist()))


def update_metadata(engine: Engine, changes: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace the metadata of nodes and keep everything else, vectors included."""
    ids = list(changes)

    def steps(change: Change) -> None:
        found = change.snapshot.rows_of("node_id", ids)
        unknown = sorted(set(ids) - set(found.values()))
        if unknown:
            msg = f"Nothing was changed: these node ids are not in the store: {listed(unknown)}."
            raise StoreError(msg)
        for batch in _batches(sorted(found), show_progress=False):
            nodes = []
            for node_id, payload, vector in change.snapshot.nodes(batch, with_vectors=True):
                node = decode(payload, vector)
                node.metadata = dict(changes[node_id])
                nodes.append(node)
            change.remove(batch)
            change.insert(encode(nodes, read_vectors(nodes, change.settings.dimension)))

    if ids:
        engine.write(steps)


def reindex(
    engine: Engine, *, analyzer: Analyzer | None, schema: Mapping[str, FieldType] | None
) -> None:
    """Change the analyzer or the declared fields, and index the stored nodes anew."""

    def steps(change: Change) -> None:
        if analyzer is not None:
            change.transaction.set_meta("analyzer", json.dumps(analyzer.to_dict()))
        if schema is not None:
            change.transaction.set_meta("schema", json.dumps(stored_schema(schema)))
            change.rewrite_facets(schema)

    engine.write(steps)


def _batches(items: Sequence[T], *, show_progress: bool) -> Iterator[Sequence[T]]:
    # disable=None: no bar where the output is not a terminal.
    quiet = None if show_progress or len(items) >= _LONG else True
    with tqdm(total=len(items), desc="Storing", unit="node", disable=quiet, leave=False) as bar:
        for start in range(0, len(items), _BATCH):
            batch = items[start : start + _BATCH]
            yield batch
            bar.update(len(batch))


def _without_copies(nodes: Iterable[BaseNode]) -> list[BaseNode]:
    """Drop repeats that are equal in everything; refuse two contents under one id."""
    first: dict[str, BaseNode] = {}
    clashes: dict[str, None] = {}
    for node in nodes:
        known = first.setdefault(node.node_id, node)
        if known is not node and content(known) != content(node):
            clashes[node.node_id] = None
    if clashes:
        msg = (
            f"Nothing was written: these node ids stand for different nodes in one call: "
            f"{listed(list(clashes))}. Give every node an id of its own, or add the versions one "
            "after the other."
        )
        raise ConfigError(msg)
    return list(first.values())
