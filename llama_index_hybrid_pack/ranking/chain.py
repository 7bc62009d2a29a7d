"""Several postprocessors as one."""

from __future__ import annotations

from typing import Any

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index_instrumentation import get_dispatcher
from pydantic import Field, SerializeAsAny, field_validator

from llama_index_hybrid_pack.observability.events import stage
from llama_index_hybrid_pack.ranking.base import HybridPostprocessor, detached, fresh, restore

dispatcher = get_dispatcher(__name__)


class PostprocessorChain(HybridPostprocessor):
    """Runs postprocessors in order, ours or any of LlamaIndex, as one postprocessor.

    Use it where one object should stand for the whole ranking: in a config, in a component that
    takes one postprocessor, or inside another chain. Each step emits a stage event of its own
    (``chain.0.CrossEncoderReranker`` …) beside the step's events. Steps of someone else get
    copies, since many of LlamaIndex's change the hits that they are given.

    Args:
        steps: Run in this order; an empty list changes nothing. A step that leaves no hit ends
            the chain.

    Raises:
        ConfigError: If a step is no postprocessor, or is a dictionary of an unknown class.

    Example:
        >>> from llama_index.core.postprocessor import SimilarityPostprocessor
        >>> from llama_index.core.schema import TextNode
        >>> chain = PostprocessorChain(steps=[SimilarityPostprocessor(similarity_cutoff=0.5)])
        >>> hits = [NodeWithScore(node=TextNode(id_=str(s)), score=s) for s in (0.9, 0.1)]
        >>> [hit.score for hit in chain.postprocess_nodes(hits)]
        [0.9]
    """

    steps: list[SerializeAsAny[BaseNodePostprocessor]] = Field(
        default_factory=list, description="Postprocessors in the order in which they run."
    )

    @field_validator("steps", mode="before")
    @classmethod
    def _restore_steps(cls, value: object) -> object:
        if not isinstance(value, (list, tuple)):
            return value
        return [restore(step, BaseNodePostprocessor) for step in value]

    @classmethod
    def class_name(cls) -> str:
        """Return the name used when serialising."""
        return "PostprocessorChain"

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "callback_manager":  # the query engine assigns it to the chain alone
            for step in self.steps:
                step.callback_manager = value

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        hits = fresh(nodes)
        for i, step in enumerate(self.steps):
            if not hits:
                break
            with stage(f"chain.{i}.{step.class_name()}", n_in=len(hits)) as timer:
                hits = step.postprocess_nodes(_safe_for(step, hits), query_bundle=query_bundle)
                timer.n_out = len(hits)
        return hits

    @dispatcher.span
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        hits = fresh(nodes)
        for i, step in enumerate(self.steps):
            if not hits:
                break
            with stage(f"chain.{i}.{step.class_name()}", n_in=len(hits)) as timer:
                given = _safe_for(step, hits)
                hits = await step.apostprocess_nodes(given, query_bundle=query_bundle)
                timer.n_out = len(hits)
        return hits


def _safe_for(step: BaseNodePostprocessor, hits: list[NodeWithScore]) -> list[NodeWithScore]:
    return hits if isinstance(step, HybridPostprocessor) else detached(hits)
