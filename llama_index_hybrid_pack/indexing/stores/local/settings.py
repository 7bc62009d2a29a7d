"""What a store remembers about itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from llama_index_hybrid_pack.errors import ConfigError, EmbeddingError
from llama_index_hybrid_pack.indexing.analyzer import Analyzer
from llama_index_hybrid_pack.indexing.filters import FieldType, Schema, facets_fingerprint
from llama_index_hybrid_pack.indexing.filters.fields import check_schema
from llama_index_hybrid_pack.indexing.stores.local.table import Snapshot


@dataclass(frozen=True)
class Settings:
    """Settings kept in the table."""

    store_id: str
    dimension: int | None
    analyzer: Analyzer
    schema: Schema

    @classmethod
    def of(cls, snapshot: Snapshot) -> Settings:
        """Read the settings of a snapshot."""
        stored = snapshot.settings()
        return cls(
            store_id=stored["store_id"],
            dimension=stored["dimension"],
            analyzer=_analyzer(json.dumps(stored["analyzer"], sort_keys=True)),
            schema=check_schema(stored["schema"]),
        )

    def lexical_fingerprint(self) -> str:
        """Return a text that changes when the lexical index no longer fits."""
        parts = f"{self.analyzer.fingerprint()} {facets_fingerprint(self.schema)}"
        return hashlib.sha256(parts.encode()).hexdigest()[:32]

    def check(
        self,
        path: Path,
        *,
        analyzer: Analyzer | None,
        dimension: int | None,
        schema: Mapping[str, FieldType] | None,
    ) -> None:
        """Refuse options that contradict the store; ``None`` takes what the store has."""
        if dimension is not None and self.dimension not in (None, dimension):
            msg = (
                f"The store at {str(path)!r} holds vectors of dimension {self.dimension}, not "
                f"{dimension}. Use the embedding model that it was made with, or make a new store "
                "and ingest the documents again."
            )
            raise EmbeddingError(msg)
        if analyzer is not None and analyzer.to_dict() != self.analyzer.to_dict():
            msg = (
                f"The store at {str(path)!r} was indexed with {self.analyzer!r}, not "
                f"{analyzer!r}. Open it without an analyzer, then call reindex(analyzer=...) to "
                "change it."
            )
            raise ConfigError(msg)
        if schema is not None and dict(schema) != dict(self.schema):
            msg = (
                f"The store at {str(path)!r} declares the fields {_shown(self.schema)}, not "
                f"{_shown(schema)}. Open it without a schema, then call "
                "reindex(metadata_schema=...) to change it."
            )
            raise ConfigError(msg)


@lru_cache(maxsize=32)
def _analyzer(stored: str) -> Analyzer:
    # One object for all generations: an analyzer remembers the terms of tokens it has seen.
    return Analyzer.from_dict(json.loads(stored))


def stored_schema(schema: Mapping[str, FieldType]) -> dict[str, str]:
    """Return a schema as JSON-able values."""
    return {name: kind.value for name, kind in schema.items()}


def _shown(schema: Mapping[str, FieldType]) -> str:
    return str(stored_schema(schema)) if schema else "none"
