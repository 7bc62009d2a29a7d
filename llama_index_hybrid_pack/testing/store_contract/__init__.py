"""A suite of tests that any LlamaIndex vector store can be put through.

Inherit :class:`StoreContract` in a test module, give it a fixture that opens your store, and say
by flags what the store does not have. Each demand is one small test, named by what it demands, in
the sync and the async colour of the store's methods.
"""

from __future__ import annotations

import pytest

# Failing assertions of the suite show their values only if pytest rewrites these modules.
for _part in (
    "base",
    "writing",
    "deleting",
    "searching",
    "filtering",
    "scoping",
    "roundtrip",
    "durability",
    "integration",
):
    pytest.register_assert_rewrite(f"{__name__}.{_part}")

from llama_index_hybrid_pack.testing.store_contract.base import (  # noqa: E402
    Answer,
    Calls,
    ContractBase,
    StoreFactory,
)
from llama_index_hybrid_pack.testing.store_contract.deleting import DeletingContract  # noqa: E402
from llama_index_hybrid_pack.testing.store_contract.durability import (  # noqa: E402
    DurabilityContract,
)
from llama_index_hybrid_pack.testing.store_contract.filtering import (  # noqa: E402
    FilteringContract,
)
from llama_index_hybrid_pack.testing.store_contract.integration import (  # noqa: E402
    IntegrationContract,
)
from llama_index_hybrid_pack.testing.store_contract.roundtrip import (  # noqa: E402
    RoundTripContract,
)
from llama_index_hybrid_pack.testing.store_contract.scoping import ScopingContract  # noqa: E402
from llama_index_hybrid_pack.testing.store_contract.searching import (  # noqa: E402
    SearchingContract,
)
from llama_index_hybrid_pack.testing.store_contract.writing import WritingContract  # noqa: E402


class StoreContract(
    WritingContract,
    DeletingContract,
    SearchingContract,
    FilteringContract,
    ScopingContract,
    RoundTripContract,
    DurabilityContract,
    IntegrationContract,
):
    """What a LlamaIndex vector store must do so that everything in this package can rely on it.

    Write a module ``test_my_store.py`` with a class like the one below and run ``pytest`` on it.
    Override the fixture ``make_store``: it returns a function that opens your store, each time on
    the same data of this one test. A store that keeps nothing may override ``store`` instead and
    set ``supports_reopen = False``. Every capability flag is ``True`` by default (see
    :class:`ContractBase`): a store that lacks one must say so, and the tests for it are shown as
    skipped.

    Example:
        >>> from llama_index.core.vector_stores import SimpleVectorStore
        >>> class TestSimpleVectorStore(StoreContract):
        ...     supports_text_search = supports_hybrid = supports_reopen = False
        ...     @pytest.fixture
        ...     def make_store(self):
        ...         return SimpleVectorStore
    """


__all__ = ["Answer", "Calls", "ContractBase", "StoreContract", "StoreFactory"]
