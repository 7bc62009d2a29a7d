"""Chunks to LlamaIndex nodes: metadata, templates, offsets into the document, links."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from llama_index.core.node_parser.node_utils import default_id_func
from llama_index.core.schema import (
    BaseNode,
    MetadataMode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)

from llama_index_hybrid_pack.chunking.drafts import Chunk
from llama_index_hybrid_pack.chunking.embed_text import EmbedText, Templates
from llama_index_hybrid_pack.chunking.identity import NodeIds
from llama_index_hybrid_pack.chunking.sections import Path
from llama_index_hybrid_pack.errors import DocumentError
from llama_index_hybrid_pack.metadata import (
    BLOCK_KIND_KEY,
    HEADING_KEY,
    HEADING_PATH_KEY,
    TABLE_HEADER_KEY,
)

#: Keys that the parser writes; a document's own entries under them are replaced.
OWN_KEYS = (HEADING_PATH_KEY, HEADING_KEY, BLOCK_KIND_KEY, TABLE_HEADER_KEY)
#: Keys that are never shown, neither to the embedding model nor to the LLM.
_SILENT_KEYS = (HEADING_PATH_KEY, BLOCK_KIND_KEY, TABLE_HEADER_KEY)
_DEFAULT_TEXT_TEMPLATE = "{metadata_str}\n\n{content}"


@dataclass(frozen=True, slots=True)
class Source:
    """What the nodes of one document take over from it.

    Args:
        node: The document, or a node of one that is parsed again.
        text: Its text.
        info: Link to the document itself, also when ``node`` is only a part of it.
        offset: Where ``text`` begins in that document; ``None`` when that is unknown.
        path: Headings above ``text``.
        templates: Formats of the embedded text.
        excluded_embed: Keys excluded from the embedded text.
        excluded_llm: Keys excluded from the LLM's text.
    """

    node: BaseNode
    text: str
    info: RelatedNodeInfo
    offset: int | None
    path: Path
    templates: Templates
    excluded_embed: list[str]
    excluded_llm: list[str]

    @classmethod
    def of(cls, node: BaseNode, *, show_heading: bool) -> Source:
        """Read a document, or a node that another parser made of one."""
        info = node.source_node
        offset: int | None = 0
        if info is None:
            info = _link_to(node)
        elif isinstance(node, TextNode):
            offset = node.start_char_idx
        above = node.metadata.get(HEADING_PATH_KEY)
        silent = _SILENT_KEYS if show_heading else (*_SILENT_KEYS, HEADING_KEY)
        return cls(
            node=node,
            text=node.get_content(metadata_mode=MetadataMode.NONE),
            info=info,
            offset=offset,
            path=tuple(map(str, above)) if isinstance(above, list | tuple) else (),
            templates=Templates(
                text=getattr(node, "text_template", _DEFAULT_TEXT_TEMPLATE),
                metadata=node.metadata_template,
                separator=node.metadata_separator,
            ),
            excluded_embed=_extended(node.excluded_embed_metadata_keys, silent),
            excluded_llm=_extended(node.excluded_llm_metadata_keys, silent),
        )

    def path_below(self, path: Path) -> Path:
        """Return the whole path of a place in the document, from its path in this text."""
        if path and path[0] in self.path:
            return self.path[: self.path.index(path[0])] + path
        return self.path + path


def build_nodes(
    source: Source,
    chunks: Iterable[Chunk],
    *,
    metadata: dict[str, object],
    embed_text: EmbedText,
    ids: NodeIds,
    id_func: Callable[..., str],
) -> list[TextNode]:
    """Return one node per chunk, linked to its document but not yet to each other.

    Args:
        source: The document.
        chunks: Its chunks in order.
        metadata: Entries that every node takes over from the document.
        embed_text: Knows which of them fit into the embedded text.
        ids: Gives ids that last.
        id_func: LlamaIndex's function for ids; its default stands for ``ids``.

    Returns:
        New nodes in the order of ``chunks``.
    """
    nodes = []
    for index, chunk in enumerate(chunks):
        own, hidden = _own_metadata(source, chunk, embed_text)
        node = TextNode(
            id_=_id(source, chunk, ids)
            if id_func is default_id_func
            else id_func(index, source.node),
            text=source.text[chunk.start : chunk.end],
            start_char_idx=None if source.offset is None else source.offset + chunk.start,
            end_char_idx=None if source.offset is None else source.offset + chunk.end,
            metadata={**metadata, **own},
            excluded_embed_metadata_keys=_extended(source.excluded_embed, hidden),
            excluded_llm_metadata_keys=source.excluded_llm,
            metadata_template=source.templates.metadata,
            metadata_separator=source.templates.separator,
            text_template=source.templates.text,
            relationships={NodeRelationship.SOURCE: source.info},
        )
        if chunk.table_header is not None:
            _show_table_header(node, source.templates, chunk.table_header)
        nodes.append(node)
    return nodes


def link_nodes(nodes: Sequence[TextNode]) -> None:
    """Link neighbours that are of the same document with PREVIOUS and NEXT.

    Args:
        nodes: New nodes in document order; their relationships are extended.
    """
    if not nodes:
        return
    infos = [node.as_related_node_info() for node in nodes]
    sources = [node.relationships[NodeRelationship.SOURCE] for node in nodes]
    source_ids = [info.node_id for info in sources if isinstance(info, RelatedNodeInfo)]
    for index in range(1, len(nodes)):
        if source_ids[index - 1] == source_ids[index]:
            nodes[index].relationships[NodeRelationship.PREVIOUS] = infos[index - 1]
            nodes[index - 1].relationships[NodeRelationship.NEXT] = infos[index]


def _link_to(node: BaseNode) -> RelatedNodeInfo:
    try:
        return node.as_related_node_info()
    except UnicodeEncodeError as error:
        msg = (
            f"The document {node.node_id!r} holds half of a surrogate pair (character "
            f"{error.start}), which is no text: no database or model takes it. Decode the document "
            "with errors='replace', or remove the character."
        )
        raise DocumentError(msg) from error


def _id(source: Source, chunk: Chunk, ids: NodeIds) -> str:
    if source.offset is None:  # the span is one in the part, so the part names it
        return ids.make(source.node.node_id, chunk.start, chunk.end)
    start = source.offset + chunk.start
    return ids.make(source.info.node_id, start, source.offset + chunk.end)


def _own_metadata(
    source: Source, chunk: Chunk, embed_text: EmbedText
) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return the entries that the parser adds, and the keys that do not fit when embedding."""
    path = source.path_below(chunk.path)
    section = embed_text.section(path)
    own: dict[str, object] = {HEADING_PATH_KEY: list(path)}
    if section.heading is not None:
        own[HEADING_KEY] = section.heading
    own[BLOCK_KIND_KEY] = chunk.kind.value
    if chunk.table_header is not None:
        own[TABLE_HEADER_KEY] = chunk.table_header
    return own, section.hidden


def _show_table_header(node: TextNode, templates: Templates, header: str) -> None:
    """Put a table's header directly before the text, in the embedded and in the LLM's text.

    LlamaIndex uses the template only when some metadata is shown, so a node that shows none
    shows the kind of its block.
    """
    node.text_template = templates.with_table_header(header)
    keys = set(node.metadata)
    if keys <= set(node.excluded_embed_metadata_keys):
        node.excluded_embed_metadata_keys = _without_kind(node.excluded_embed_metadata_keys)
    if keys <= set(node.excluded_llm_metadata_keys):
        node.excluded_llm_metadata_keys = _without_kind(node.excluded_llm_metadata_keys)


def _without_kind(keys: Sequence[str]) -> list[str]:
    return [key for key in keys if key != BLOCK_KIND_KEY]


def _extended(keys: Sequence[str], more: Sequence[str]) -> list[str]:
    return [*keys, *(key for key in more if key not in keys)]
