"""Vectors as LlamaIndex's nodes hold them (lists of floats) or as arrays: one matrix."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llama_index_hybrid_pack.errors import ConfigError

Floats = NDArray[np.float32] | NDArray[np.float64]
_FLOAT_TYPES = (np.dtype(np.float32), np.dtype(np.float64))


def as_matrix(vectors: ArrayLike | Sequence[Sequence[float] | NDArray[np.float32]]) -> Floats:
    """Return vectors as one array, without a copy where they are one already.

    Lists of Python floats become 32-bit numbers, which is what models and stores compute with;
    numbers too large for that become infinite.

    Args:
        vectors: Shape ``(n, d)``: an array, a list of arrays, or a list of lists.

    Returns:
        Shape ``(n, d)``, float32 or float64.

    Raises:
        ConfigError: If the rows are no numbers or have different lengths.

    Example:
        >>> as_matrix([[1.0, 0.0], [0.5, 0.5]]).shape
        (2, 2)
    """
    if isinstance(vectors, list) and vectors and isinstance(vectors[0], list):
        try:
            # Packing is three times faster than numpy's own reading of nested lists.
            pack = struct.Struct(f"{len(vectors[0])}f").pack
            packed = b"".join([pack(*row) for row in vectors])
            return np.frombuffer(packed, dtype=np.float32).reshape(len(vectors), -1)
        except (struct.error, OverflowError, TypeError, ValueError):
            pass  # odd numbers or lengths: numpy reads them or says what is wrong
    try:
        matrix = np.asarray(vectors)
        return matrix if matrix.dtype in _FLOAT_TYPES else matrix.astype(np.float64)
    except (TypeError, ValueError) as error:
        msg = f"The vectors are no (n, d) array of numbers: {error}"
        raise ConfigError(msg) from error
