"""Options, opening, copying and closing of the embedded store."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, Field, PrivateAttr, ValidationError

from llama_index_hybrid_pack.errors import StoreError, bad_options
from llama_index_hybrid_pack.indexing.analyzer import Analyzer
from llama_index_hybrid_pack.indexing.filters import FieldType
from llama_index_hybrid_pack.indexing.stores.base import HybridStore
from llama_index_hybrid_pack.indexing.stores.local.engine import Engine
from llama_index_hybrid_pack.indexing.stores.local.follower import remove_folder
from llama_index_hybrid_pack.indexing.stores.local.handle import Handle
from llama_index_hybrid_pack.indexing.stores.local.opening import check_exists, open_engine
from llama_index_hybrid_pack.indexing.stores.local.rowsets import RowSets

Opened = TypeVar("Opened", bound="OpenedStore")


class OpenedStore(HybridStore):
    """A store object as a handle on a folder; :class:`LocalHybridStore` adds what it can do."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid", frozen=True)

    path: str | None = Field(default=None, description="Folder of the store; None = temporary.")
    analyzer: Analyzer | None = Field(
        default=None,
        description="Terms of the BM25 leg; None = the store's own, Analyzer() in a new store.",
    )
    dimension: int | None = Field(
        default=None, ge=1, description="Length of the vectors; None = fixed by the first one."
    )
    metadata_schema: dict[str, FieldType] | None = Field(
        default=None,
        description=(
            "Declared types of metadata fields, for filters: int, float, str, bool, date. None = "
            "the store's own, none in a new store."
        ),
    )
    unknown_fields: Literal["raise", "missing"] = Field(
        default="raise",
        description=(
            "A filter on a field that no node has: raise = FilterError, since it is mostly a "
            "typing error; missing = the field counts as missing in every node."
        ),
    )
    read_only: bool = Field(default=False, description="Never write, not even to repair an index.")
    lock_timeout: float = Field(
        default=60.0, ge=0.0, description="Seconds to wait for another writer; 0 = not at all."
    )
    hybrid_depth: int = Field(
        default=30,
        ge=1,
        description=(
            "Fewest hits per leg that mode hybrid fuses: with similarity_top_k = 2 alone, fusion "
            "would see next to nothing."
        ),
    )
    inverted_above: int | None = Field(
        default=1_000_000,
        ge=0,
        description=(
            "Number of vectors above which unfiltered dense search reads inverted lists instead "
            "of every vector: up to a million the full scan is exact and takes 40 ms or less. "
            "None = never."
        ),
    )
    _handle: Handle = PrivateAttr()
    _row_sets: RowSets = PrivateAttr()

    def __init__(self, path: str | os.PathLike[str] | None = None, **options: Any) -> None:
        try:
            super().__init__(path=None if path is None else os.fspath(path), **options)
        except ValidationError as error:
            raise bad_options(self.class_name(), error) from error
        self._row_sets = RowSets(refuse_unknown=self.unknown_fields == "raise")
        self._handle = Handle(self._opener(), str(path))
        with self._handle.engine().view() as view:
            # The store's own settings stand where none were given.
            self.__dict__["analyzer"] = view.settings.analyzer
            self.__dict__["metadata_schema"] = dict(view.settings.schema)

    def _opener(self) -> Callable[[], Engine]:
        folder = Path(tempfile.mkdtemp(prefix="hybrid-pack-") if self.path is None else self.path)
        if self.path is None:
            weakref.finalize(self._row_sets, remove_folder, folder, os.getpid())
        return partial(
            open_engine,
            folder,
            read_only=self.read_only,
            analyzer=self.analyzer,
            dimension=self.dimension,
            schema=self.metadata_schema,
            lock_timeout=self.lock_timeout,
            inverted_above=self.inverted_above,
        )

    @classmethod
    def open(cls: type[Opened], path: str | os.PathLike[str], **options: Any) -> Opened:
        """Open an existing store; unlike the constructor, never make one.

        Args:
            path: Folder of the store.
            **options: Those of the constructor.

        Raises:
            StoreError: If there is no store.
        """
        check_exists(Path(path))
        return cls(path, **options)

    @property
    def client(self) -> Engine:
        """The open engine: table, indexes and lock."""
        return self._handle.engine()

    def close(self) -> None:
        """Close files and connections, for copies of this object too; twice is no error."""
        self._handle.close()

    def __enter__(self: Opened) -> Opened:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # A store is a handle on a folder: two are equal when they are the same object.
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __copy__(self: Opened) -> Opened:
        return self

    def __deepcopy__(self: Opened, memo: dict[int, Any] | None = None) -> Opened:
        """Return the same store: its data are the folder's, and it may be shared."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is None:
            msg = "A store without a path lives in its process. Give it a path to pickle it."
            raise StoreError(msg)
        # Analyzer, dimension and schema are the folder's, and may change before the reopening.
        of_the_folder = {"path", "analyzer", "dimension", "metadata_schema"}
        options = {
            name: getattr(self, name) for name in type(self).model_fields.keys() - of_the_folder
        }
        return _reopen, (type(self), str(Path(self.path).absolute()), options)


def _reopen(kind: type[Opened], path: str, options: dict[str, Any]) -> Opened:
    return kind(path, **options)
