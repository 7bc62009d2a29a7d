"""A retriever that runs the ranking chain, for code that takes a retriever only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts.mixin import PromptMixinType
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index_instrumentation import get_dispatcher

dispatcher = get_dispatcher(__name__)


class RankingRetriever(BaseRetriever):
    """Retrieves, then ranks: the whole funnel behind LlamaIndex's retriever interface.

    Use it where a component takes a retriever and no postprocessors (agents, evaluators,
    routers). A query engine that takes both can use the parts directly.

    Args:
        retriever: Finds the candidates.
        postprocessors: Run in order on the candidates; an empty sequence changes nothing.
    """

    def __init__(
        self, retriever: BaseRetriever, postprocessors: Sequence[BaseNodePostprocessor]
    ) -> None:
        super().__init__()
        self.retriever = retriever
        self.postprocessors = tuple(postprocessors)

    def _get_prompt_modules(self) -> PromptMixinType:
        return {"retriever": self.retriever}

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = self.retriever.retrieve(query_bundle)
        for postprocessor in self.postprocessors:
            hits = postprocessor.postprocess_nodes(hits, query_bundle=query_bundle)
        return hits

    @dispatcher.span
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if type(self.retriever)._aretrieve is BaseRetriever._aretrieve:
            # LlamaIndex's default runs the sync search inside the event loop.
            hits = await asyncio.to_thread(self.retriever.retrieve, query_bundle)
        else:
            hits = await self.retriever.aretrieve(query_bundle)
        for postprocessor in self.postprocessors:
            hits = await postprocessor.apostprocess_nodes(hits, query_bundle=query_bundle)
        return hits
