"""Logits and probabilities, exact where 32 bits would call all good hits equal."""

from __future__ import annotations

import math


def sigmoid(logit: float) -> float:
    """Return the probability of a logit, ``1 / (1 + exp(-logit))``, in 64 bits.

    In 32 bits every logit from 17 on becomes 1.0, in bfloat16 from 9 on, so that the best hits
    tie; in 64 bits that begins at 37.

    Args:
        logit: Any number, infinite allowed.

    Returns:
        In [0, 1], never smaller for a larger logit.

    Example:
        >>> sigmoid(0.0)
        0.5
        >>> sigmoid(12.0) > sigmoid(9.0)
        True
    """
    if logit >= 0:
        return 1.0 / (1.0 + math.exp(-logit))
    small = math.exp(logit)  # exp of a positive number could overflow
    return small / (1.0 + small)


def logit(probability: float) -> float:
    """Return the logit of a probability, ``log(p / (1 - p))``.

    Args:
        probability: In [0, 1].

    Returns:
        Minus infinity for 0 and infinity for 1.

    Example:
        >>> logit(0.5)
        0.0
    """
    if probability <= 0.0:
        return -math.inf
    if probability >= 1.0:
        return math.inf
    return math.log(probability) - math.log1p(-probability)
