"""Answers with and without an LLM, and the honest one when nothing was found."""

from __future__ import annotations

import pytest
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index_hybrid_pack.answering.compact import get_synthesizer
from llama_index_hybrid_pack.answering.passages import NOT_FOUND, source_label
from llama_index_hybrid_pack.testing.fakes import ScriptedLLM


def hits() -> list[NodeWithScore]:
    return [
        NodeWithScore(
            node=TextNode(
                text="Refunds take ten days.",
                metadata={"file_path": "refunds.md", "heading": "Refunds > Time"},
            ),
            score=0.9,
        ),
        NodeWithScore(node=TextNode(id_="n2", text="Cards are refunded first."), score=0.1),
    ]


async def test_without_an_llm_the_passages_are_the_answer_in_both_colours() -> None:
    synthesizer = get_synthesizer(None)
    answer = synthesizer.synthesize("How long?", hits())
    assert str(answer).startswith("[1] refunds.md, Refunds > Time\nRefunds take ten days.")
    assert "[2] n2\nCards are refunded first." in str(answer)
    assert len(answer.source_nodes) == 2
    assert str(await synthesizer.asynthesize("How long?", hits())) == str(answer)


@pytest.mark.parametrize("with_llm", [False, True])
async def test_nothing_found_is_said_and_no_llm_is_called(with_llm: bool) -> None:
    llm = ScriptedLLM(answers=["made up"])
    synthesizer = get_synthesizer(llm if with_llm else None)
    assert str(synthesizer.synthesize("How long?", [])) == NOT_FOUND
    assert str(await synthesizer.asynthesize("How long?", [])) == NOT_FOUND
    assert llm.prompts == []


def test_with_an_llm_the_passages_are_in_its_prompt() -> None:
    llm = ScriptedLLM(answers=["Ten days."])
    answer = get_synthesizer(llm).synthesize("How long?", hits())
    assert str(answer) == "Ten days."
    assert "Refunds take ten days." in llm.prompts[0]
    assert len(answer.source_nodes) == 2


def test_a_label_names_the_best_source_there_is() -> None:
    assert source_label(TextNode(id_="n", text="x")) == "n"
    assert source_label(TextNode(text="x", metadata={"file_name": "a.md"})) == "a.md"
