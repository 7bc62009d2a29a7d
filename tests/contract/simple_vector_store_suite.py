"""The store contract over LlamaIndex's SimpleVectorStore; run by test_simple_vector_store.py.

The file has no test name of its own, because most of what it shows are faults of that store.
"""

from __future__ import annotations

from typing import ClassVar

import pytest
from llama_index.core.vector_stores import SimpleVectorStore

from llama_index_hybrid_pack.testing.store_contract import StoreContract, StoreFactory


class TestSimpleVectorStore(StoreContract):
    # Declared, so not counted as faults: it keeps no text and searches by vector only.
    supports_text_search: ClassVar[bool] = False
    supports_hybrid: ClassVar[bool] = False
    supports_get_nodes: ClassVar[bool] = False
    supports_reopen: ClassVar[bool] = False
    unsupported_modes: ClassVar[tuple[()]] = ()

    @pytest.fixture
    def make_store(self) -> StoreFactory:
        return SimpleVectorStore
