"""Documents into a store: only what changed is embedded, and each batch is one commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.node_parser import NodeParser
from llama_index.core.schema import BaseNode, Document, MetadataMode
from tqdm import tqdm

from llama_index_hybrid_pack.errors import ConfigError, EmbeddingError
from llama_index_hybrid_pack.indexing.stores.base import HybridStore
from llama_index_hybrid_pack.observability.events import stage

# A commit costs a few tenths of a second, and a batch is what an interruption loses.
_BATCH_CHARACTERS = 1_000_000
_BATCH_DOCUMENTS = 256


@dataclass(frozen=True)
class IngestReport:
    """What an ingest did.

    Args:
        documents: Documents given.
        nodes: Nodes that those documents have now.
        embedded: Nodes whose text was embedded.
        updated: Nodes whose metadata or links changed while their text did not.
        unchanged: Nodes that were in the store already, just so.
        deleted: Nodes of earlier versions of these documents that are gone.
        seconds: Wall time.
    """

    documents: int = 0
    nodes: int = 0
    embedded: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, float]:
        """Return the figures by name."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.documents} documents, {self.nodes} passages: {self.embedded} embedded, "
            f"{self.updated} updated, {self.unchanged} unchanged, {self.deleted} removed "
            f"({self.seconds:.1f} s)."
        )


@dataclass(frozen=True)
class _Plan:
    """One batch's difference from the store."""

    embed: list[BaseNode]
    update: list[BaseNode]
    unchanged: int
    delete: list[str]


def ingest_documents(
    documents: Sequence[Document],
    *,
    store: HybridStore,
    parser: NodeParser,
    embed_model: BaseEmbedding,
    show_progress: bool = False,
) -> IngestReport:
    """Parse, embed and store documents, replacing earlier versions of the same ids.

    A document is known by its id. Nodes whose embedding text is in the store already keep their
    vector; nodes of an earlier version that are no longer there are deleted. Each batch of
    documents is embedded first and then stored in one commit, so a failure or Ctrl-C leaves
    every document either as it was or complete, and calling again goes on from there.

    Args:
        documents: Documents with ids of their own; LlamaIndex's random default ids would make
            every ingest a new document.
        store: Where the nodes go.
        parser: Cuts documents into nodes with deterministic ids.
        embed_model: Embeds the nodes' ``EMBED`` text.
        show_progress: Show a bar over the characters, when the output is a terminal.

    Returns:
        Counts of what was done.

    Raises:
        ConfigError: If two documents have the same id; nothing is stored.
        EmbeddingError: If a vector cannot be used; earlier batches stay.
        StoreWriteError: If the store cannot be written; earlier batches stay.
    """
    _refuse_duplicates(documents)
    start = perf_counter()
    totals: Counter[str] = Counter()
    size = sum(len(document.text) for document in documents)
    with (
        stage("ingest", n_in=len(documents)) as timer,
        # disable=None: tqdm itself looks whether the output is a terminal.
        tqdm(
            total=size,
            unit="char",
            unit_scale=True,
            desc="Ingesting",
            disable=None if show_progress else True,
        ) as bar,
    ):
        for batch in _batches(documents):
            nodes = parser.get_nodes_from_documents(batch)
            plan = _compare(store, [document.node_id for document in batch], nodes)
            _embed(plan.embed, embed_model)
            changed = [*plan.embed, *plan.update]
            if changed or plan.delete:
                store.apply(changed, delete_node_ids=plan.delete)
            totals.update(
                nodes=len(nodes),
                embedded=len(plan.embed),
                updated=len(plan.update),
                unchanged=plan.unchanged,
                deleted=len(plan.delete),
            )
            bar.update(sum(len(document.text) for document in batch))
        timer.n_out = totals["nodes"]
    return IngestReport(
        documents=len(documents), seconds=round(perf_counter() - start, 3), **dict(totals)
    )


def _refuse_duplicates(documents: Sequence[Document]) -> None:
    counts = Counter(document.node_id for document in documents)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        msg = (
            f"{len(twice)} document ids are given more than once: {twice[:5]}. Give every "
            "document an id of its own; nothing was stored."
        )
        raise ConfigError(msg)


def _batches(documents: Sequence[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += len(document.text)
        if characters >= _BATCH_CHARACTERS or len(batch) >= _BATCH_DOCUMENTS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _embedding_text(node: BaseNode) -> str:
    return node.get_content(metadata_mode=MetadataMode.EMBED)


def _compare(store: HybridStore, doc_ids: Sequence[str], nodes: Sequence[BaseNode]) -> _Plan:
    """Sort the nodes of a batch by what has to be done for them."""
    old = {node.node_id: node for node in store.nodes_of(doc_ids)}
    embed: list[BaseNode] = []
    same_text: list[BaseNode] = []
    unchanged = 0
    for node in nodes:
        before = old.pop(node.node_id, None)
        if before is None or _embedding_text(before) != _embedding_text(node):
            embed.append(node)
        elif before.to_dict() == node.to_dict():
            unchanged += 1
        else:
            same_text.append(node)
    vectors = store.get_embeddings([node.node_id for node in same_text])
    update: list[BaseNode] = []
    for node in same_text:
        if node.node_id in vectors:
            update.append(_with_embedding(node, vectors[node.node_id].tolist()))
        else:
            embed.append(node)
    return _Plan(embed=embed, update=update, unchanged=unchanged, delete=sorted(old))


def _with_embedding(node: BaseNode, vector: list[float]) -> BaseNode:
    node.embedding = vector
    return node


def _embed(nodes: Sequence[BaseNode], embed_model: BaseEmbedding) -> None:
    vectors = embed_model.get_text_embedding_batch([_embedding_text(node) for node in nodes])
    if len(vectors) != len(nodes):
        msg = (
            f"{embed_model.class_name()} gave {len(vectors)} vectors for {len(nodes)} texts. "
            "Its batch size or its service is at fault; nothing of this batch was stored."
        )
        raise EmbeddingError(msg)
    for node, vector in zip(nodes, vectors, strict=True):
        _with_embedding(node, vector)
