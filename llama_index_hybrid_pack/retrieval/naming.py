"""Names of legs: they label ranks and scores in the stage record, the trace and prompts."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core.base.base_retriever import BaseRetriever

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.retrieval.foreign import is_keyword
from llama_index_hybrid_pack.retrieval.store import StoreRetriever

# Their entries in the stage record would be taken for the leg's.
_LATER_STAGES = frozenset({"fusion", "late_interaction", "cross_encoder", "threshold", "mmr"})
# Class in a retriever's ancestry → name of the leg.
_KINDS = {"VectorIndexRetriever": "dense", "HybridFusionRetriever": "hybrid"}


def leg_names(retrievers: Sequence[BaseRetriever], names: Sequence[str] | None) -> list[str]:
    """Return one name per leg, each different.

    Args:
        retrievers: The legs' retrievers.
        names: Names that the caller chose; ``None`` = by kind of retriever.

    Returns:
        The names in the order of the retrievers.

    Raises:
        ConfigError: If a name is missing, doubled, or cannot be used.

    Example:
        >>> leg_names([], [])
        []
    """
    if names is not None:
        distinct = len(names) == len(retrievers) == len(set(names)) and all(names)
        if isinstance(names, str) or not distinct:
            msg = f"names is {names!r}. Give each of the {len(retrievers)} legs a name of its own."
            raise ConfigError(msg)
        if wrong := [name for name in names if ":" in name or name in _LATER_STAGES]:
            msg = (
                f"{wrong} cannot be names of legs: they are names of later stages, or hold a "
                "colon, which parts a leg's name from its prompt's."
            )
            raise ConfigError(msg)
        return list(names)
    chosen: list[str] = []
    for retriever in retrievers:
        base = _kind(retriever)
        taken = [name for name in chosen if name == base or name.startswith(f"{base}_")]
        chosen.append(f"{base}_{len(taken) + 1}" if taken else base)
    return chosen


def _kind(retriever: BaseRetriever) -> str:
    if isinstance(retriever, StoreRetriever):
        return retriever.leg
    if is_keyword(retriever):
        return "bm25"
    kinds = (_KINDS.get(base.__name__) for base in type(retriever).__mro__)
    return next((kind for kind in kinds if kind), type(retriever).__name__)
