"""Late interaction: every token of the query finds its best token of the passage.

Khattab and Zaharia, "ColBERT: Efficient and effective passage search via contextualized late
interaction over BERT", SIGIR 2020. Here the best similarities are averaged instead of summed, so
that the score is a cosine whatever the length of the query.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from llama_index_hybrid_pack.errors import EmbeddingError


def max_sim(
    query: NDArray[np.float32], passages: Sequence[NDArray[np.float32]]
) -> NDArray[np.float64]:
    """Return, per passage, the mean over query tokens of the best passage token's cosine.

    Args:
        query: Unit vectors of the query's tokens, shape ``(q, d)``, q at least 1.
        passages: Unit vectors of each passage's tokens, shape ``(t, d)`` with its own t.

    Returns:
        Shape ``(n,)``, in [-1, 1]; NaN for a passage without tokens.

    Raises:
        EmbeddingError: If the query has no tokens or the dimensions differ.

    Complexity: O(q * d * all tokens of the passages) time; memory for all of those tokens.

    Example:
        >>> query = np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
        >>> max_sim(query, [query, query[:1]]).tolist()
        [1.0, 0.5]
    """
    if query.ndim != 2 or len(query) == 0:
        msg = f"The query's token vectors have shape {query.shape}; (tokens, d) is needed."
        raise EmbeddingError(msg)
    scores = np.full(len(passages), np.nan)
    filled = [i for i, passage in enumerate(passages) if len(passage)]
    if not filled:
        return scores
    tokens = np.concatenate([passages[i] for i in filled])
    if tokens.shape[1] != query.shape[1]:
        msg = (
            f"Token vectors of the query have {query.shape[1]} dimensions and those of the "
            f"passages {tokens.shape[1]}. Both must come from one model."
        )
        raise EmbeddingError(msg)
    lengths = [len(passages[i]) for i in filled]
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    best = np.maximum.reduceat(tokens @ query.T, starts, axis=0)
    scores[filled] = best.mean(axis=1, dtype=np.float64)
    return scores
