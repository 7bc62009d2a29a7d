"""One error tree, so that a caller can catch what it means.

::

    HybridPackError
    ├── ConfigError            (ValueError)       an option is out of range or does not fit another
    │   └── ScoreScaleError                       a threshold meets scores of another scale
    ├── MissingExtraError      (ImportError)      an optional dependency is not installed
    ├── ModelNotFoundError     (FileNotFoundError) a model's name or path leads nowhere
    ├── DocumentError          (ValueError)       a document cannot be read or parsed
    ├── EmbeddingError         (ValueError)       a vector has the wrong dimension or is not finite
    ├── FilterError            (ValueError)       a metadata filter cannot be honoured
    ├── AccessDeniedError      (PermissionError)  retrieval without the principal that it needs
    ├── RetrievalError         (RuntimeError)     every leg of a retrieval failed
    ├── RerankError            (RuntimeError)     a postprocessor failed and ``on_error="raise"``
    ├── EvaluationError        (ValueError)       a golden set or a run cannot be evaluated
    └── StoreError             (RuntimeError)
        ├── StoreWriteError    (OSError)          the disk is full or read-only; nothing was changed
        ├── StoreLockedError                      another writer holds the store
        ├── StoreVersionError                     the store was written by a newer version
        └── StoreCorruptError                     the table itself cannot be read

Every class also inherits the built-in exception that a caller would catch anyway.
Messages say what was received, what is allowed and what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class HybridPackError(Exception):
    """Base of every error that this package raises on purpose."""


class ConfigError(HybridPackError, ValueError):
    """An option is out of range, unknown, or contradicts another option."""


class ScoreScaleError(ConfigError):
    """A cut-off was given for one score scale and met scores of another."""


class MissingExtraError(HybridPackError, ImportError):
    """An optional dependency is missing; the message holds the install line."""


class ModelNotFoundError(HybridPackError, FileNotFoundError):
    """A model could not be found by the given name or path."""


class DocumentError(HybridPackError, ValueError):
    """A document cannot be read: binary, wrong encoding, or too large."""


class EmbeddingError(HybridPackError, ValueError):
    """A vector is missing, not finite, or of another dimension than the store's."""


class FilterError(HybridPackError, ValueError):
    """A metadata filter cannot be honoured exactly, so it is refused."""


class AccessDeniedError(HybridPackError, PermissionError):
    """Retrieval was tried without the principal that the access policy needs."""


class RetrievalError(HybridPackError, RuntimeError):
    """No leg of a retrieval gave a result, or a leg failed under ``on_error="raise"``."""


class RerankError(HybridPackError, RuntimeError):
    """A postprocessor failed under ``on_error="raise"``."""


class EvaluationError(HybridPackError, ValueError):
    """A golden set or a run cannot be evaluated; the message names the line or id."""


class StoreError(HybridPackError, RuntimeError):
    """A store could not do what was asked."""


class StoreWriteError(StoreError, OSError):
    """A write failed (disk full, read-only path); the previous state is intact."""


class StoreLockedError(StoreError):
    """Another process is writing to the store."""


class StoreVersionError(StoreError):
    """The store was written by a newer version of this package."""


class StoreCorruptError(StoreError):
    """The store's table cannot be read."""


def bad_options(owner: str, error: ValidationError) -> ConfigError:
    """Turn pydantic's report into one error of this package that names each wrong option.

    Args:
        owner: Name of the class whose options were wrong.
        error: What pydantic raised.

    Returns:
        The error to raise.
    """
    problems = "; ".join(
        f"{'.'.join(str(part) for part in item['loc']) or 'options'}: "
        f"{item['msg'].removeprefix('Value error, ').rstrip('.')}"
        for item in error.errors()
    )
    return ConfigError(f"These options make no {owner}: {problems}.")
