"""The contract suite fails for the faults that it is there to find."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore

from llama_index_hybrid_pack.testing.postprocessor_contract import (
    PostprocessorContract,
    fused_hits,
)


class Faulty(BaseNodePostprocessor):
    """Has one of the faults of rerankers in use today."""

    fault: str
    _count: Any = None

    @classmethod
    def class_name(cls) -> str:
        return "Faulty"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: Any = None
    ) -> list[NodeWithScore]:
        if self.fault == "no question, no message":
            query_bundle.query_str.lower()
        if self.fault == "changes the score in place":
            for hit in nodes:
                hit.score = 1.0
            return nodes
        out = [NodeWithScore(node=hit.node, score=hit.score) for hit in nodes]
        if self.fault == "numpy scores":
            for hit in out:
                hit.score = np.float32(0.5)  # type: ignore[assignment]
        elif self.fault == "NaN scores":
            out[0].score = float("nan")
        elif self.fault == "repeats a hit":
            out.append(out[0])
        elif self.fault == "writes metadata for the LLM":
            for hit in out:
                hit.node = hit.node.model_copy()
                hit.node.metadata = {**hit.node.metadata, "retrieval_score": 1}
        elif self.fault == "another order each time":
            self._count = self._count or itertools.count()
            if next(self._count) % 2:
                out.reverse()
        return out

    async def _apostprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
        out = self._postprocess_nodes(nodes, query_bundle)
        return out[:1] if self.fault == "async differs" else out


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        ("changes the score in place", "test_inputs_stay_as_they_were"),
        ("numpy scores", "test_scores_are_plain_floats"),
        ("NaN scores", "test_scores_are_plain_floats"),
        ("repeats a hit", "test_returns_each_hit_at_most_once_and_none_of_its_own"),
        ("writes metadata for the LLM", "test_metadata_for_models_is_not_widened"),
        ("another order each time", "test_same_call_same_result"),
        ("no question, no message", "test_without_a_question_it_works_or_says_why_not"),
    ],
)
def test_a_fault_is_caught(fault: str, test: str) -> None:
    check = getattr(PostprocessorContract(), test)
    with pytest.raises((AssertionError, AttributeError)):
        check(Faulty(fault=fault), fused_hits())


async def test_a_different_async_result_is_caught() -> None:
    with pytest.raises(AssertionError):
        await PostprocessorContract().test_async_gives_the_same(
            Faulty(fault="async differs"), fused_hits()
        )
