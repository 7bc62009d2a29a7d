"""Options of the pack: frozen, keyword-only, and readable from and to YAML.

Every field says its unit, its range and why its default is what it is. The measured defaults
name the run that earned them: ``docs/quality.md``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from llama_index_hybrid_pack._options import StrictOptions
from llama_index_hybrid_pack.errors import ConfigError

#: Names of the presets of :meth:`PackOptions.preset`.
Preset = Literal["default", "fast", "cross_encoder"]
Reranker = Literal["auto", "late_interaction", "cross_encoder", "none"]


class _Options(StrictOptions, BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)


class ChunkingOptions(_Options):
    """How documents become nodes."""

    chunk_size: int | None = Field(
        default=None,
        ge=16,
        description=(
            "Tokens of heading and body together, counted by the embedding model's tokenizer. "
            "None = as much as the model reads, at most 512: what lies beyond is not embedded."
        ),
    )


class RetrievalOptions(_Options):
    """How candidates are found and fused."""

    leg_top_k: int = Field(
        default=100,
        ge=1,
        description=(
            "Candidates per leg. 100 rather than 30: ranks 31 to 100 give the missing half of the "
            "score of candidates that both legs know, at next to no cost (docs/quality.md)."
        ),
    )
    mode: Literal["weighted", "rrf"] = Field(
        default="weighted",
        description=(
            "weighted = convex combination of normalised scores, measured better than rrf on "
            "the development sets; rrf = reciprocal rank fusion, which needs no scores "
            "(docs/quality.md)."
        ),
    )
    dense_weight: float = Field(
        default=0.5,
        ge=0.0,
        le=1.0,
        description="Share of the dense leg; BM25 has the rest. At 0 or 1 one leg is left out.",
    )
    normalization: Literal["min_max", "z_score", "dist_based"] = Field(
        default="z_score",
        description=(
            "Makes the scores of the legs comparable in weighted mode; z_score was the best of "
            "five on the development sets (docs/quality.md)."
        ),
    )
    rrf_k: float = Field(
        default=60.0,
        ge=0.0,
        description="Constant of reciprocal rank fusion; 60 is the paper's (Cormack et al. 2009).",
    )
    on_error: Literal["fallback", "raise"] = Field(
        default="fallback",
        description="fallback = a failing leg is left out and recorded; raise = the query fails.",
    )


class RankingOptions(_Options):
    """How candidates become the few that are returned."""

    reranker: Reranker = Field(
        default="auto",
        description=(
            "late_interaction needs no further model; cross_encoder needs one from a hub or a "
            "folder; none keeps the fused order. auto = late_interaction where the embedding "
            "model gives token vectors (a local one does, an API does not), else none."
        ),
    )
    candidates: int = Field(
        default=30,
        ge=1,
        description="Fused candidates that are reranked; the cost of reranking grows with it.",
    )
    cross_encoder_model: str = Field(
        default="cross-encoder/ms-marco-MiniLM-L-6-v2",
        min_length=1,
        description="Name on a model hub, or path, of the cross-encoder.",
    )
    blend_weight: float = Field(
        default=0.5,
        ge=0.0,
        le=1.0,
        description=(
            "Share of the reranker's score in the final one, both normalised per query; 1 = the "
            "reranker alone, 0 = the fused order (docs/quality.md)."
        ),
    )
    top_n: int = Field(default=5, ge=1, description="Passages returned: what fits a prompt well.")
    min_probability: float | None = Field(
        default=None,
        ge=0.0,
        le=1.0,
        description=(
            "Drop passages below this probability. Needs a cross-encoder, whose score has that "
            "meaning; None = off."
        ),
    )
    mmr_lambda: float | None = Field(
        default=None,
        ge=0.0,
        le=1.0,
        description=(
            "Relevance against diversity in maximal marginal relevance; 1 = relevance alone. "
            "None = off, since it costs recall where near-copies are rare."
        ),
    )


class PackOptions(_Options):
    """All options of a :class:`~llama_index_hybrid_pack.pack.HybridPack`.

    Example:
        >>> options = PackOptions(retrieval=RetrievalOptions(leg_top_k=50))
        >>> options.retrieval.leg_top_k, options.ranking.top_n
        (50, 5)
    """

    chunking: ChunkingOptions = ChunkingOptions()
    retrieval: RetrievalOptions = RetrievalOptions()
    ranking: RankingOptions = RankingOptions()
    language: Annotated[str | None, Field(min_length=2)] = Field(
        default="en",
        description=(
            "Language of the documents for stemming and stop words in BM25, as an ISO code or a "
            "Snowball name; None = neither. Fixed when the store is made."
        ),
    )

    @classmethod
    def preset(cls, name: Preset) -> PackOptions:
        """Return a named set of options.

        Args:
            name: ``"default"``: hybrid search and late interaction; ``"fast"``: hybrid search
                alone; ``"cross_encoder"``: hybrid search and a cross-encoder from a model hub.

        Returns:
            The options.

        Raises:
            ConfigError: If there is no preset of that name.

        Example:
            >>> PackOptions.preset("fast").ranking.reranker
            'none'
        """
        rerankers: dict[str, Reranker] = {
            "default": "auto",
            "fast": "none",
            "cross_encoder": "cross_encoder",
        }
        if name not in rerankers:
            msg = f"There is no preset {name!r}. Choose one of {sorted(rerankers)}."
            raise ConfigError(msg)
        return cls(ranking=RankingOptions(reranker=rerankers[name]))

    @classmethod
    def from_yaml(cls, path: str | Path) -> PackOptions:
        """Read options from a YAML file; what the file leaves out keeps its default.

        Args:
            path: The file.

        Returns:
            The options.

        Raises:
            ConfigError: If the file is missing, is no YAML mapping, or holds an unknown or
                impossible option; the message names each one.
        """
        try:
            loaded = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            msg = f"The options cannot be read from {str(path)!r}: {error}"
            raise ConfigError(msg) from error
        if loaded is None:
            loaded = {}
        if not isinstance(loaded, dict):
            msg = (
                f"{str(path)!r} holds a {type(loaded).__name__}, not a mapping. Write for example "
                "'retrieval: {leg_top_k: 50}'."
            )
            raise ConfigError(msg)
        try:
            return cls.model_validate(loaded)
        except ValueError as error:  # pydantic's and our own
            msg = f"{str(path)!r} holds options that cannot be used: {error}"
            raise ConfigError(msg) from error

    def to_yaml(self, path: str | Path) -> None:
        """Write all options, defaults too, so that a later version's defaults change nothing.

        Args:
            path: The file; overwritten when it is there.
        """
        Path(path).write_text(
            yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False), encoding="utf-8"
        )
