"""Small deterministic stand-ins for models, for tests of code that uses this package."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.llms import CompletionResponse, CompletionResponseGen, CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback
from pydantic import Field, PrivateAttr

_WORD = re.compile(r"\w+")


class HashEmbedding(BaseEmbedding):
    """Bag of hashed words as a unit vector: equal words give near vectors, no model needed.

    Example:
        >>> vector = HashEmbedding(dimensions=8).get_query_embedding("refund")
        >>> len(vector)
        8
    """

    dimensions: int = Field(default=64, ge=2, description="Length of the vectors.")
    model_name: str = "hash"

    @classmethod
    def class_name(cls) -> str:
        """Return the name used when serialising."""
        return "HashEmbedding"

    def _vector(self, text: str) -> list[float]:
        vector = np.full(self.dimensions, 1e-3)
        for word in _WORD.findall(text.lower()):
            digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
            sign = 1.0 if digest[0] & 1 else -1.0
            vector[int.from_bytes(digest[1:5], "big") % self.dimensions] += sign
        return [float(x) for x in vector / np.linalg.norm(vector)]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._vector(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._vector(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._vector(text)


class ScriptedLLM(CustomLLM):
    """An LLM that gives the answers it was told to give, in order, and records the prompts.

    Example:
        >>> llm = ScriptedLLM(answers=["Ten days."])
        >>> llm.complete("How long?").text
        'Ten days.'
    """

    answers: Sequence[str] = Field(description="Answers in order; the last one repeats.")
    _prompts: list[str] = PrivateAttr(default_factory=list)

    @classmethod
    def class_name(cls) -> str:
        """Return the name used when serialising."""
        return "ScriptedLLM"

    @property
    def prompts(self) -> list[str]:
        """Every prompt so far, oldest first."""
        return list(self._prompts)

    @property
    def metadata(self) -> LLMMetadata:
        """Describe the model to LlamaIndex."""
        return LLMMetadata(model_name="scripted", context_window=8192, num_output=512)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Return the next scripted answer."""
        answer = self.answers[min(len(self._prompts), len(self.answers) - 1)]
        self._prompts.append(prompt)
        return CompletionResponse(text=answer)

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        """Return the next scripted answer as one piece."""

        def pieces() -> CompletionResponseGen:
            response = self.complete(prompt)
            yield CompletionResponse(text=response.text, delta=response.text)

        return pieces()
