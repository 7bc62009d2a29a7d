"""The steps of one write: into the table, and beside it into the lexical index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from llama_index_hybrid_pack.indexing.filters import Schema
from llama_index_hybrid_pack.indexing.stores.local.lexical import LexicalIndex
from llama_index_hybrid_pack.indexing.stores.local.postings import (
    LexicalDocument,
    PostingsSession,
)
from llama_index_hybrid_pack.indexing.stores.local.prefilter import facet_numbers
from llama_index_hybrid_pack.indexing.stores.local.records import Record, decode, embedded_text
from llama_index_hybrid_pack.indexing.stores.local.settings import Settings
from llama_index_hybrid_pack.indexing.stores.local.table import Snapshot
from llama_index_hybrid_pack.indexing.stores.local.transaction import Transaction


class Change:
    """An open write; the lexical index is opened only if nodes come in."""

    def __init__(
        self,
        transaction: Transaction,
        settings: Settings,
        lexical: LexicalIndex,
        stack: ExitStack,
    ) -> None:
        self.transaction = transaction
        self.settings = settings
        self.removed = 0
        self._lexical = lexical
        self._stack = stack
        self._session: PostingsSession | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The table as this write sees it, its own steps included."""
        return self.transaction.snapshot

    def insert(self, records: Sequence[Record]) -> None:
        """Insert nodes whose ids are not in the table."""
        if self._session is None:
            following = self.transaction.generation
            self._session = self._stack.enter_context(
                self._lexical.extension(self.snapshot, following)
            )
        for row, record in zip(self.transaction.insert(records), records, strict=True):
            self._session.add(
                LexicalDocument(
                    row,
                    self.settings.analyzer.terms(record.text),
                    facet_numbers(record.metadata, self.settings.schema),
                )
            )

    def remove(self, rows: Sequence[int]) -> None:
        """Remove rows that are in the table."""
        self.transaction.remove(rows)
        self.removed += len(rows)

    def rewrite_facets(self, schema: Schema) -> None:
        """Write the filterable values of every node anew, by other declared types."""
        self.transaction.rewrite_facets(
            (
                (row, decode(payload).metadata)
                for row, payload in self.snapshot.connection.execute(
                    "SELECT row, node FROM payloads"
                )
            ),
            schema,
        )


def stored_documents(
    settings: Settings, snapshot: Snapshot, after_row: int
) -> Iterator[LexicalDocument]:
    """Yield what the lexical index needs of the stored nodes above a row."""
    cursor = snapshot.connection.execute(
        "SELECT row, node FROM payloads WHERE row > ? ORDER BY row", (after_row,)
    )
    for row, payload in cursor:
        node = decode(payload)
        yield LexicalDocument(
            row,
            settings.analyzer.terms(embedded_text(node)),
            facet_numbers(node.metadata, settings.schema),
        )
