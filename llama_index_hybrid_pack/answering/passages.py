"""An answer without an LLM: the passages themselves, each with its source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.response.schema import RESPONSE_TYPE, Response
from llama_index.core.llms import MockLLM
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.response_synthesizers import BaseSynthesizer
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore
from llama_index.core.types import RESPONSE_TEXT_TYPE

from llama_index_hybrid_pack.metadata import HEADING_KEY

#: What is answered when no passage was found.
NOT_FOUND = "I couldn't find this in the documents."


def source_label(node: BaseNode) -> str:
    """Return where a passage comes from, for people: the file and its headings.

    Args:
        node: A retrieved node.

    Returns:
        For example ``billing/refunds.md, Refunds > Partial refunds``.

    Example:
        >>> from llama_index.core.schema import TextNode
        >>> source_label(TextNode(text="...", metadata={"file_path": "a.md", "heading": "Refunds"}))
        'a.md, Refunds'
    """
    document = (
        node.metadata.get("file_path")
        or node.metadata.get("file_name")
        or node.ref_doc_id
        or node.node_id
    )
    heading = node.metadata.get(HEADING_KEY)
    return f"{document}, {heading}" if heading else str(document)


class PassageSynthesizer(BaseSynthesizer):
    """Returns the passages with their sources as the response; calls no LLM.

    Use it where no LLM is configured: the query engine then still answers with what was found,
    and :data:`NOT_FOUND` when nothing was.

    Example:
        >>> from llama_index.core.schema import TextNode
        >>> node = TextNode(text="Ten days.", metadata={"file_path": "refunds.md"})
        >>> print(PassageSynthesizer().synthesize("How long?", [NodeWithScore(node=node)]))
        [1] refunds.md
        Ten days.
    """

    def __init__(self) -> None:
        # The base class would otherwise resolve Settings.llm, which needs a hosted model.
        super().__init__(llm=MockLLM(), empty_response=NOT_FOUND)

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        """Do nothing: there are no prompts."""

    def get_response(
        self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any
    ) -> RESPONSE_TEXT_TYPE:
        """Join the texts; :meth:`synthesize` adds the sources."""
        del query_str, response_kwargs
        return "\n\n".join(text_chunks)

    async def aget_response(
        self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any
    ) -> RESPONSE_TEXT_TYPE:
        """Join the texts; :meth:`asynthesize` adds the sources."""
        return self.get_response(query_str, text_chunks, **response_kwargs)

    def _prepare_response_output(
        self, response_str: RESPONSE_TEXT_TYPE | None, source_nodes: list[NodeWithScore]
    ) -> RESPONSE_TYPE:
        del response_str
        passages = [
            f"[{number}] {source_label(hit.node)}\n"
            f"{hit.node.get_content(metadata_mode=MetadataMode.NONE).strip()}"
            for number, hit in enumerate(source_nodes, start=1)
        ]
        return Response(
            "\n\n".join(passages),
            source_nodes=source_nodes,
            metadata=self._get_metadata_for_response([hit.node for hit in source_nodes]),
        )
