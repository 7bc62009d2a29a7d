"""The embedded store against the contract that every store of the package is held to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from llama_index_hybrid_pack.errors import EmbeddingError, FilterError
from llama_index_hybrid_pack.indexing.stores.local import LocalHybridStore
from llama_index_hybrid_pack.testing.store_contract import StoreContract


class TestLocalHybridStore(StoreContract):
    embedding_error: ClassVar[type[Exception]] = EmbeddingError
    filter_error: ClassVar[type[Exception]] = FilterError
    score_tolerance: ClassVar[float] = 1e-6

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> Iterator[Callable[[], LocalHybridStore]]:
        opened: list[LocalHybridStore] = []

        def make() -> LocalHybridStore:
            opened.append(LocalHybridStore(tmp_path / "store"))
            return opened[-1]

        yield make
        for store in opened:
            store.close()
