"""The embedded store: one folder with a SQLite table and two indexes derived from it."""

from __future__ import annotations

from llama_index_hybrid_pack.indexing.stores.local.store import LocalHybridStore

__all__ = ["LocalHybridStore"]
