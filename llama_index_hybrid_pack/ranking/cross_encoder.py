"""Reranking with a cross-encoder, which reads question and passage together."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from llama_index_hybrid_pack._optional import require
from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.indexing.embedding import by_length
from llama_index_hybrid_pack.indexing.models import (
    LoadedModel,
    check_device,
    load_shared,
    model_location,
)
from llama_index_hybrid_pack.metadata import ScoreScale
from llama_index_hybrid_pack.ranking.reranker import BaseReranker
from llama_index_hybrid_pack.scoring.probability import sigmoid

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder


class CrossEncoderReranker(BaseReranker):
    """Reranks with a sentence-transformers ``CrossEncoder`` on this machine.

    Use it where quality matters more than some hundred milliseconds: it is the most accurate of
    the local rerankers and the slowest. It needs the extra ``models`` and a model, by name from a
    hub or by path. The model is loaded at the first use, once per process; its own activation
    function is ignored, so that the score means the same whatever the model's files say.

    Args:
        model: Name on a hub, or path of a folder.
        top_n: Hits returned.
        blend_weight: Share of this reranker in the final score.
        score_scale: ``"logit"`` or ``"probability"``.

    Raises:
        ConfigError: If an option is out of range; at the first use, if the model gives more than
            one number per pair or is no cross-encoder.
        MissingExtraError: At the first use, if the extra ``models`` is not installed.
        ModelNotFoundError: At the first use, if there is no such model.

    Example:
        >>> reranker = CrossEncoderReranker(model="BAAI/bge-reranker-base", blend_weight=1.0)
        >>> reranker.own_scale.value
        'logit'
    """

    stage_name: ClassVar[str] = "cross_encoder"

    model: str = Field(
        default="cross-encoder/ms-marco-MiniLM-L-6-v2",
        min_length=1,
        description=(
            "Name on a model hub, or path of a folder. The default is small, English, and is "
            "downloaded (90 MB) at the first use."
        ),
    )
    score_scale: Literal["logit", "probability"] = Field(
        default="logit",
        description=(
            "What the reranker's own score is: the model's output as it is, or its sigmoid. The "
            "order is the same, and ScoreThreshold converts between the two."
        ),
    )
    batch_size: int = Field(
        default=8,
        ge=1,
        description=(
            "Pairs that the model reads at once. Batches are cut by length: small ones pad least, "
            "which counts most on a CPU; a GPU likes 64 and more (benchmarks/ranking.py)."
        ),
    )
    max_length: int | None = Field(
        default=None,
        ge=8,
        description=(
            "Tokens of question and passage together; the longer one is cut. None = all that the "
            "model reads; a smaller number is faster."
        ),
    )
    device: str | None = Field(
        default=None, description="For example cpu or cuda:1; None = a GPU where there is one."
    )
    dtype: Literal["float32", "float16", "bfloat16"] = Field(
        default="float32",
        description=(
            "Precision of the weights. The 16-bit ones are faster where the processor has them, "
            "and change scores a little. Scores are converted to 32 bits before anything else."
        ),
    )
    local_files_only: bool = Field(
        default=False, description="Never download: the model must be on this machine already."
    )

    @classmethod
    def class_name(cls) -> str:
        """Return the name used when serialising."""
        return "CrossEncoderReranker"

    @property
    def model_label(self) -> str:
        """Name or path of the model."""
        return self.model

    @property
    def own_scale(self) -> ScoreScale:
        """Logit or probability, as ``score_scale`` says."""
        return ScoreScale(self.score_scale)

    def _declared(self, score: float) -> float:
        return sigmoid(score) if self.score_scale == "probability" else score

    def score_texts(self, query: str, texts: list[str]) -> list[float]:
        """Return the model's logit for each text.

        Args:
            query: The user's question.
            texts: Any number of texts.

        Returns:
            One unbounded number per text, whatever ``score_scale`` is.
        """
        loaded = self._loaded()
        identity = require("torch", extra="models").nn.Identity()

        def run(batch: list[str]) -> list[float]:
            scores: list[float] = loaded.model.predict(
                [(query, text) for text in batch],
                batch_size=len(batch),
                activation_fn=identity,
                show_progress_bar=False,
            ).tolist()
            return scores

        return by_length(run, texts, self.batch_size, loaded.lock)

    def _loaded(self) -> LoadedModel:
        location, is_folder = model_location(self.model)
        local_files_only = is_folder or self.local_files_only

        def load() -> CrossEncoder:
            library = require("sentence_transformers", extra="models")
            torch = require("torch", extra="models")
            check_device(self.device)
            model: CrossEncoder = library.CrossEncoder(
                location,
                device=self.device,
                trust_remote_code=False,
                local_files_only=local_files_only,
            )
            self._check(model)
            if self.max_length is not None:
                model.tokenizer.model_max_length = self.max_length
            return model.to(getattr(torch, self.dtype))

        key = (
            "cross_encoder",
            location,
            self.device,
            self.dtype,
            self.max_length,
            local_files_only,
        )
        return load_shared(key, load, name=self.model, local_files_only=local_files_only)

    def _check(self, model: CrossEncoder) -> None:
        labels = getattr(model, "num_labels", model.config.num_labels)
        if labels != 1:
            msg = (
                f"The model {self.model!r} gives {labels} numbers per pair, like a classifier. A "
                "reranker gives one: choose a cross-encoder with num_labels = 1."
            )
            raise ConfigError(msg)
        architectures = getattr(model.config, "architectures", None) or []
        has_head = any("SequenceClassification" in name for name in architectures)
        # Since sentence-transformers 6 a model may bring its head as a module of its own.
        own_modules = len(model) if hasattr(model, "__len__") else 1
        if not has_head and own_modules == 1:
            msg = (
                f"The model {self.model!r} ({', '.join(architectures)}) is no cross-encoder: it "
                "has no head that scores a pair, so that its scores would be random. An embedding "
                "model can rerank with LateInteractionReranker."
            )
            raise ConfigError(msg)
        limit = model.tokenizer.model_max_length
        if self.max_length is not None and self.max_length > limit:
            msg = (
                f"max_length is {self.max_length}, but the model {self.model!r} reads {limit} "
                "tokens. Give at most that, or None."
            )
            raise ConfigError(msg)
