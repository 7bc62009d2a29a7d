"""One meaning of LlamaIndex's MetadataFilters for every engine.

- :func:`validate_filters` refuses what cannot be honoured exactly;
- :func:`matches` and :func:`compile_predicate` are the reference meaning, in Python;
- :func:`select_rows` is the same meaning over the embedded store's facets table;
- :func:`combine` joins filters of several origins so that none widens another.
"""

from __future__ import annotations

from llama_index_hybrid_pack.indexing.filters.combination import combine
from llama_index_hybrid_pack.indexing.filters.facets import (
    FACETS_DDL,
    FACETS_VERSION,
    delete_facets,
    facets,
    facets_fingerprint,
    stored_fields,
    write_facets,
)
from llama_index_hybrid_pack.indexing.filters.fields import FieldType, Schema
from llama_index_hybrid_pack.indexing.filters.rows import select_rows
from llama_index_hybrid_pack.indexing.filters.semantics import compile_predicate, matches
from llama_index_hybrid_pack.indexing.filters.sql import register_functions
from llama_index_hybrid_pack.indexing.filters.validation import validate_filters

__all__ = [
    "FACETS_DDL",
    "FACETS_VERSION",
    "FieldType",
    "Schema",
    "combine",
    "compile_predicate",
    "delete_facets",
    "facets",
    "facets_fingerprint",
    "matches",
    "register_functions",
    "select_rows",
    "stored_fields",
    "validate_filters",
    "write_facets",
]
