"""LlamaIndex's compact answer, with an honest word when nothing was found."""

from __future__ import annotations

from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.llms import LLM
from llama_index.core.response_synthesizers import BaseSynthesizer, CompactAndRefine

from llama_index_hybrid_pack.answering.passages import NOT_FOUND, PassageSynthesizer


class CompactSynthesizer(CompactAndRefine):
    """Answers from as many passages as fit one prompt; says so when there are none.

    Without passages no LLM is called, and the response is
    :data:`~llama_index_hybrid_pack.answering.passages.NOT_FOUND`.

    Args:
        llm: The LLM that writes the answer.
        streaming: Whether the answer arrives piece by piece.
    """

    def __init__(self, llm: LLM, *, streaming: bool = False) -> None:
        super().__init__(llm=llm, streaming=streaming)
        self._empty_response = NOT_FOUND


def get_synthesizer(llm: BaseLLM | None, *, streaming: bool = False) -> BaseSynthesizer:
    """Return the synthesizer for what is at hand: an LLM's answer, or the passages.

    Args:
        llm: An LLM, or ``None`` to answer with the passages themselves.
        streaming: Whether an LLM's answer arrives piece by piece.

    Returns:
        A synthesizer that never needs a model that was not given.
    """
    if llm is None:
        return PassageSynthesizer()
    return CompactSynthesizer(llm, streaming=streaming)  # type: ignore[arg-type]
