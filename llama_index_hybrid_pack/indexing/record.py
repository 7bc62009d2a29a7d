"""What a pack remembers beside its store: the embedding model and the options it was made with."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from llama_index.core.base.embeddings.base import BaseEmbedding

from llama_index_hybrid_pack.config import PackOptions
from llama_index_hybrid_pack.errors import (
    ConfigError,
    StoreCorruptError,
    StoreError,
    StoreVersionError,
    StoreWriteError,
)
from llama_index_hybrid_pack.indexing.embedding import SentenceTransformerEmbedding

FILE_NAME = "pack.json"
_FORMAT = 1


@dataclass(frozen=True)
class StoreRecord:
    """Embedding model and options of a store.

    Args:
        model_class: ``class_name()`` of the embedding model.
        model_name: Its ``model_name``.
        options: Options that the store was made with.
        path: Folder of the store, for messages.
    """

    model_class: str
    model_name: str
    options: PackOptions
    path: str = ""

    @classmethod
    def of(cls, embed_model: BaseEmbedding, options: PackOptions) -> StoreRecord:
        """Return the record for a new store.

        Args:
            embed_model: The model that its nodes are embedded with.
            options: The options.
        """
        return cls(embed_model.class_name(), embed_model.model_name, options)

    @staticmethod
    def exists(path: str | os.PathLike[str]) -> bool:
        """Return whether there is a record in a folder.

        Args:
            path: Folder of the store.
        """
        return (Path(path) / FILE_NAME).is_file()

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> StoreRecord:
        """Read the record of a store.

        Args:
            path: Folder of the store.

        Returns:
            The record.

        Raises:
            StoreError: If there is none.
            StoreVersionError: If a newer version of this package wrote it.
            StoreCorruptError: If it cannot be read.
        """
        file = Path(path) / FILE_NAME
        if not file.is_file():
            msg = (
                f"There is no store at {os.fspath(path)!r}. Make one with 'hybrid-pack ingest "
                f"FOLDER --store {os.fspath(path)}' or "
                "HybridPack.from_documents(documents, path=...)."
            )
            raise StoreError(msg)
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            if values["format"] > _FORMAT:
                msg = (
                    f"{str(file)!r} has format {values['format']}, this version reads up to "
                    f"{_FORMAT}. Upgrade llama-index-hybrid-pack."
                )
                raise StoreVersionError(msg)
            return cls(
                model_class=values["embed_model"]["class"],
                model_name=values["embed_model"]["name"],
                options=PackOptions.model_validate(values["options"]),
                path=os.fspath(path),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            msg = (
                f"{str(file)!r} cannot be read ({type(error).__name__}: {error}). Restore it from "
                "a backup, or ingest into a new folder."
            )
            raise StoreCorruptError(msg) from error

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the record in one step: temporary file, then rename.

        Args:
            path: Folder of the store.

        Raises:
            StoreWriteError: If the folder cannot be written.
        """
        values = {
            "format": _FORMAT,
            "embed_model": {"class": self.model_class, "name": self.model_name},
            "options": self.options.model_dump(mode="json"),
        }
        try:
            handle, temporary = tempfile.mkstemp(dir=path, prefix=f".{FILE_NAME}.")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(values, file, indent=2)
            Path(temporary).replace(Path(path) / FILE_NAME)
        except OSError as error:
            msg = f"{os.fspath(path)!r} cannot be written ({error}). Free space or permit it."
            raise StoreWriteError(msg) from error

    def embed_model(self, given: BaseEmbedding | None) -> BaseEmbedding:
        """Return the embedding model for queries and new documents.

        Args:
            given: A model, which must be the one of the store; ``None`` = make the recorded one.

        Returns:
            The model.

        Raises:
            ConfigError: If it is another model, or the recorded one cannot be made from its name.
        """
        if given is None:
            if self.model_class == SentenceTransformerEmbedding.class_name():
                return SentenceTransformerEmbedding(model_name=self.model_name)
            msg = (
                f"The store at {self.path!r} was made with {self.model_class} "
                f"({self.model_name}). Give that model as embed_model."
            )
            raise ConfigError(msg)
        # The same model may lie in another folder on another machine.
        if Path(given.model_name).name != Path(self.model_name).name:
            msg = (
                f"The store at {self.path!r} was made with {self.model_class} "
                f"({self.model_name}), not {given.class_name()} ({given.model_name}): vectors of "
                "different models cannot be compared. Give that model, or ingest into a new "
                "folder."
            )
            raise ConfigError(msg)
        return given
