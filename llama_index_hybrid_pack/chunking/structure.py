"""StructureNodeParser: Markdown and plain text to nodes along the document's own structure."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from llama_index.core.node_parser import NodeParser
from llama_index.core.node_parser.node_utils import default_id_func
from llama_index.core.schema import BaseNode, Document, TextNode
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    field_validator,
)
from tqdm import tqdm

from llama_index_hybrid_pack._options import StrictOptions
from llama_index_hybrid_pack.chunking.drafts import Limits
from llama_index_hybrid_pack.chunking.embed_model import model_limits
from llama_index_hybrid_pack.chunking.embed_text import EmbedText
from llama_index_hybrid_pack.chunking.formats import detect_format, parse_text
from llama_index_hybrid_pack.chunking.identity import (
    NodeIds,
    fingerprint,
    function_from_name,
    function_name,
    tokenizer_identity,
)
from llama_index_hybrid_pack.chunking.measuring import Measure
from llama_index_hybrid_pack.chunking.nodes import OWN_KEYS, Source, build_nodes, link_nodes
from llama_index_hybrid_pack.chunking.packing import pack
from llama_index_hybrid_pack.chunking.sections import Path, split_sections
from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.observability.events import stage
from llama_index_hybrid_pack.text import DEFAULT_TOKENIZER, get_tokenizer

#: Changes when the same settings give other chunks than before, and with it every node's id.
VERSION = 1
#: Tokens that a model with a longer input is given by default: longer chunks answer more
#: questions and none of them sharply.
LONGEST_DEFAULT = 512


def _read_id_func(value: object) -> object:
    if value is None:
        return default_id_func
    return function_from_name(value) if isinstance(value, str) else value


def _write_id_func(function: Callable[..., str]) -> str | None:
    return None if function is default_id_func else function_name(function)


class StructureNodeParser(StrictOptions, NodeParser):
    r"""Cuts documents along headings, paragraphs, list items, table rows and code blocks.

    Use it for Markdown and plain text in place of ``MarkdownNodeParser`` and
    ``SentenceSplitter``: every node holds text of one section, fits what the embedding model
    reads, knows the headings above it, and is an exact slice of its document.

    Each node carries ``heading_path`` (list, the section's own heading last), ``heading`` (the
    same for people: ``Billing > Refunds``; part of the embedded text), ``block_kind``, exact
    offsets, an id that depends only on document, span and settings, and links to its document and
    its neighbours. A document's own entries under these keys are replaced. Front matter becomes
    metadata and never replaces an entry that the document has. A table that is cut repeats its
    header through the node's text template, so it is embedded and shown but not part of the
    node's text.

    Metadata counts towards ``chunk_size`` as far as it is embedded. The text keeps at least half
    of it: of metadata beyond the other half, the heading path is shortened from its start, and
    entries that do not fit are excluded from the embedded text of the node, nothing else.

    Args:
        chunk_size: Tokens of the embedded text, special tokens included.
        tokenizer: What counts tokens.
        reserved_tokens: Tokens that the embedding model adds to each text.
        format: Format of the documents.
        min_chunk_size: Sections below it are joined with equally small neighbours.
        include_heading: Whether the readable heading path is embedded and shown to the LLM.
        include_metadata: Whether nodes take over the document's metadata and front matter.
        include_prev_next_rel: Whether nodes of one document are linked.
        id_func: Function for ids in place of the lasting ones; a named one survives ``to_dict``.

    Raises:
        ConfigError: If an option is out of range or unknown.
        ModelNotFoundError: When parsing, if ``tokenizer`` leads nowhere.

    Example:
        >>> from llama_index.core import Document
        >>> document = Document(text="# Billing\n## Refunds\nTen days.", id_="d")
        >>> node = StructureNodeParser().get_nodes_from_documents([document])[0]
        >>> node.metadata["heading_path"], document.text[node.start_char_idx : node.end_char_idx]
        (['Billing', 'Refunds'], '# Billing\n## Refunds\nTen days.')
    """

    model_config = ConfigDict(
        extra="forbid", validate_assignment=True, arbitrary_types_allowed=True
    )

    chunk_size: int = Field(
        default=256,
        ge=16,
        description=(
            "Tokens of the text that is embedded: visible metadata, heading and body, and the "
            "tokens that the model adds. Default 256, which is all that the packaged MiniLM "
            "reads; what lies beyond a model's limit is never embedded."
        ),
    )
    tokenizer: str = Field(
        default=DEFAULT_TOKENIZER,
        min_length=1,
        description=(
            "Name of the tokenizer that counts: cl100k_base, or the folder of the embedding model "
            "(its tokenizer.json). Default cl100k_base, which needs no model; use "
            "for_embed_model to count as the model does."
        ),
    )
    reserved_tokens: int = Field(
        default=2,
        ge=0,
        le=8,
        description=(
            "Tokens that the embedding model puts around each text, 0 to 8. Default 2: [CLS] and "
            "[SEP] of BERT and its kin."
        ),
    )
    format: Literal["auto", "markdown", "text"] = Field(
        default="auto",
        description=(
            "Format of the documents. auto = by file_name, file_path or mimetype in the metadata, "
            "else Markdown."
        ),
    )
    min_chunk_size: int = Field(
        default=0,
        ge=0,
        description=(
            "Tokens; neighbouring sections that are both smaller are joined under the path that "
            "they share. Default 0 = never: a node then stands under exactly one heading, and the "
            "path in its embedded text gives a short section the context that it lacks."
        ),
    )
    include_heading: bool = Field(
        default=True,
        description=(
            "Whether the readable heading path is part of the text that is embedded and shown to "
            "the LLM. Default true: a chunk alone seldom names its subject."
        ),
    )
    id_func: Annotated[
        Callable[..., str],
        BeforeValidator(_read_id_func),
        PlainSerializer(_write_id_func, return_type=str | None),
        WithJsonSchema({"type": "string"}),
    ] = Field(
        default=default_id_func,
        description=(
            "Function (index, document) -> id. Default: ids that depend only on document id, span "
            "and settings, so that parsing again gives the same ids."
        ),
    )

    @field_validator("min_chunk_size")
    @classmethod
    def _check_min(cls, value: int, info: Any) -> int:
        largest = info.data.get("chunk_size", value)
        if value > largest:
            msg = f"min_chunk_size is {value}, more than chunk_size ({largest}); give at most that"
            raise ValueError(msg)
        return value

    def __getstate__(self) -> dict[str, Any]:
        """Refuse to lose the function for ids, which LlamaIndex would drop with a warning."""
        pickle.dumps(self.id_func)
        return super().__getstate__()

    @classmethod
    def class_name(cls) -> str:
        """Return the name used when serialising; its number changes when chunks change."""
        return f"StructureNodeParser.v{VERSION}"

    @classmethod
    def for_embed_model(
        cls, embed_model: object, *, chunk_size: int | None = None, **options: Any
    ) -> StructureNodeParser:
        """Return a parser that counts as an embedding model does and fills what it reads.

        Args:
            embed_model: Any embedding model. Tokenizer and limit come from its attributes
                ``tokenizer_name`` and ``max_tokens``, from ``HuggingFaceEmbedding`` or from a
                sentence-transformers model; otherwise the defaults of the options hold.
            chunk_size: Tokens of the embedded text, special tokens included; ``None`` = as much
                as the model reads, at most 512.
            **options: Further options of the parser.

        Returns:
            The parser.

        Raises:
            ConfigError: If ``chunk_size`` is more than the model reads.

        Example:
            >>> from llama_index.core import MockEmbedding
            >>> StructureNodeParser.for_embed_model(MockEmbedding(embed_dim=8)).chunk_size
            256
        """
        reserved = options.get("reserved_tokens", cls.model_fields["reserved_tokens"].default)
        limits = model_limits(embed_model, special_tokens=reserved)
        options.setdefault("tokenizer", limits.tokenizer)
        if limits.max_tokens is not None:
            readable = limits.max_tokens + reserved
            if chunk_size is None:
                chunk_size = min(readable, LONGEST_DEFAULT)
            elif chunk_size > readable:
                msg = (
                    f"chunk_size is {chunk_size}, but the embedding model reads {readable} tokens "
                    "(special tokens included); the rest of each chunk would not be embedded. "
                    f"Give at most {readable}, or another model."
                )
                raise ConfigError(msg)
        if chunk_size is not None:
            options["chunk_size"] = chunk_size
        return cls(**options)

    def settings_fingerprint(self) -> str:
        """Return a digest of every setting that alters the nodes; it is part of their ids.

        The tokenizer counts by its content, not by its path, so that ids are the same on every
        machine.

        Returns:
            16 hexadecimal digits.
        """
        settings = self.to_dict()
        settings.pop("include_prev_next_rel")
        settings["tokenizer"] = tokenizer_identity(self.tokenizer)
        return fingerprint(settings)

    def _parse_nodes(
        self, nodes: Sequence[BaseNode], show_progress: bool = False, **_kwargs: Any
    ) -> list[BaseNode]:
        parsed: list[TextNode] = []
        with stage("chunking", n_in=len(nodes)) as timer:
            # get_tokenizer first: it says what is wrong when the name leads nowhere.
            get_tokenizer(self.tokenizer)
            ids = NodeIds(self.settings_fingerprint())
            progress = tqdm(
                nodes, desc="Parsing documents", disable=None if show_progress else True
            )
            for node in progress:
                parsed.extend(self._parse_document(node, ids))
            if self.include_prev_next_rel:
                link_nodes(parsed)
            timer.n_out = len(parsed)
        return list(parsed)

    async def _aparse_nodes(
        self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any
    ) -> list[BaseNode]:
        return await asyncio.to_thread(
            self._parse_nodes, nodes, show_progress=show_progress, **kwargs
        )

    def _postprocess_parsed_nodes(
        self,
        nodes: list[BaseNode],
        parent_doc_map: dict[str, Document],  # noqa: ARG002
    ) -> list[BaseNode]:
        """Return the nodes as they are.

        LlamaIndex's own step searches for offsets by text and links wrongly; ours are set.
        """
        return nodes

    def _parse_document(self, node: BaseNode, ids: NodeIds) -> list[TextNode]:
        source = Source.of(node, show_heading=self.include_heading)
        if not source.text or source.text.isspace():
            return []
        text_format = detect_format(node.metadata) if self.format == "auto" else self.format
        parsed = parse_text(source.text, text_format, front_matter=source.offset == 0)
        metadata: dict[str, object] = {}
        if self.include_metadata:
            both = {**parsed.metadata, **node.metadata}
            metadata = {key: value for key, value in both.items() if key not in OWN_KEYS}
        measure = Measure(source.text, get_tokenizer(self.tokenizer))
        embed_text = EmbedText(
            metadata=metadata,
            excluded=source.excluded_embed,
            templates=source.templates,
            measure=measure,
            budget=self.chunk_size - self.reserved_tokens,
        )
        sections = split_sections(parsed.blocks)
        embed_text.prepare(source.path_below(section.path) for section in sections)

        def limits(path: Path) -> Limits:
            return embed_text.limits(source.path_below(path))

        chunks = pack(sections, measure, limits, min_chunk_size=self.min_chunk_size)
        return build_nodes(
            source,
            chunks,
            metadata=metadata,
            embed_text=embed_text,
            ids=ids,
            id_func=self.id_func,
        )
