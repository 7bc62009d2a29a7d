"""The ranking chain of a pack, made from its options."""

from __future__ import annotations

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.postprocessor.types import BaseNodePostprocessor

from llama_index_hybrid_pack.config import RankingOptions
from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.indexing.embedding import as_token_embedder
from llama_index_hybrid_pack.indexing.stores.base import HybridStore
from llama_index_hybrid_pack.metadata import ScoreScale
from llama_index_hybrid_pack.ranking.chain import PostprocessorChain
from llama_index_hybrid_pack.ranking.cross_encoder import CrossEncoderReranker
from llama_index_hybrid_pack.ranking.late_interaction import LateInteractionReranker
from llama_index_hybrid_pack.ranking.mmr import MMRPostprocessor
from llama_index_hybrid_pack.ranking.reranker import BaseReranker
from llama_index_hybrid_pack.ranking.threshold import ScoreThreshold


def make_chain(
    options: RankingOptions,
    *,
    embed_model: BaseEmbedding,
    store: HybridStore | None = None,
    top_n: int | None = None,
) -> PostprocessorChain:
    """Make reranker, threshold and MMR, as far as the options ask for them.

    Args:
        options: What the chain consists of.
        embed_model: For late interaction, and for vectors that the store does not have.
        store: Has the vectors for MMR.
        top_n: Hits that the chain returns instead of ``options.top_n``; it may not exceed
            ``options.candidates`` by much without hits that were never reranked.

    Returns:
        The chain; empty when no step is asked for.

    Raises:
        ConfigError: If a probability is asked for without a cross-encoder, or late interaction
            without token vectors.
    """
    count = options.top_n if top_n is None else top_n
    diverse = options.mmr_lambda is not None
    steps: list[BaseNodePostprocessor] = []
    # MMR chooses among all reranked candidates, so that only the last step cuts.
    reranker = make_reranker(options, embed_model, top_n=None if diverse else count)
    if reranker is not None:
        steps.append(reranker)
    if options.min_probability is not None:
        if not isinstance(reranker, CrossEncoderReranker):
            msg = (
                f"min_probability is {options.min_probability}, but only the score of a "
                "cross-encoder is a probability. Set ranking.reranker to 'cross_encoder', or "
                "min_probability to None."
            )
            raise ConfigError(msg)
        steps.append(
            ScoreThreshold(
                cutoff=options.min_probability,
                scale=ScoreScale.PROBABILITY,
                stage=CrossEncoderReranker.stage_name,
            )
        )
    if options.mmr_lambda is not None:
        steps.append(
            MMRPostprocessor(
                lambda_mult=options.mmr_lambda, top_n=count, store=store, embed_model=embed_model
            )
        )
    return PostprocessorChain(steps=steps)


def make_reranker(
    options: RankingOptions, embed_model: BaseEmbedding, *, top_n: int | None
) -> BaseReranker | None:
    """Make the reranker that the options ask for.

    Args:
        options: Kind, model and blend.
        embed_model: Gives token vectors for late interaction.
        top_n: Hits that it returns; ``None`` = all.

    Returns:
        The reranker, or ``None`` when none is asked for.

    Raises:
        ConfigError: If late interaction is asked for and the model gives no token vectors.
    """
    kind = options.reranker
    if kind == "auto":
        try:
            as_token_embedder(embed_model)
        except ConfigError:
            return None
        kind = "late_interaction"
    if kind == "late_interaction":
        return LateInteractionReranker(
            embed_model=embed_model,
            top_n=top_n,
            max_candidates=options.candidates,
            blend_weight=options.blend_weight,
        )
    if kind == "cross_encoder":
        return CrossEncoderReranker(
            model=options.cross_encoder_model,
            top_n=top_n,
            max_candidates=options.candidates,
            blend_weight=options.blend_weight,
        )
    return None
