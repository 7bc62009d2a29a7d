"""tantivy's side of the lexical leg: one commit to an index, and BM25 search in it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from llama_index_hybrid_pack.indexing.stores.local.prefilter import FacetTest

_BODY = "body"
_ROW = "row"
_FACET = "facet"
#: Bytes that tantivy may fill before it writes a segment; few documents fill little of it.
_HEAP = 64_000_000
#: Row sets up to this size are cheaper as single term queries than as a term set.
_FEW_ROWS = 1000


class DamagedIndexError(Exception):
    """The index on disk cannot be opened or read."""


class PostingsWriteError(Exception):
    """The index could not be written; its last commit stands."""


class LexicalDocument(NamedTuple):
    """What the index needs of a node."""

    row: int
    terms: Sequence[str]
    facets: Sequence[int]


@contextmanager
def _told(kind: type[Exception]) -> Iterator[None]:
    """Raise ``kind`` for what tantivy raises: ValueError for nearly everything, or a panic."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        raise kind(str(error)) from error
    except BaseException as error:
        # A panic arrives as a BaseException of the binding's own.
        if type(error).__name__ != "PanicException":
            raise
        raise kind(str(error)) from error


def _reading() -> AbstractContextManager[None]:
    return _told(DamagedIndexError)


def _writing() -> AbstractContextManager[None]:
    return _told(PostingsWriteError)


class Postings:
    """An open tantivy index."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        import tantivy

        if create:
            with _writing():
                folder.mkdir(parents=True)
                self._index = tantivy.Index(_schema(), path=str(folder))
        else:
            with _reading():
                self._index = tantivy.Index.open(str(folder))
        builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace())
        self._index.register_tokenizer("whitespace", builder.build())
        with _reading():
            self._index.config_reader("manual")

    def searcher(self) -> PostingsView:
        """Return a view of the newest commit."""
        with _reading():
            self._index.reload()
            return PostingsView(self._index.schema, self._index.searcher())

    @contextmanager
    def session(self) -> Iterator[PostingsSession]:
        """Write one commit; leaving by an exception writes nothing."""
        session = PostingsSession(self._index)
        try:
            session.open()
            yield session
        except BaseException:
            session.abort()
            raise
        session.close()


class PostingsSession:
    """One commit to be."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self._schema = index.schema
        self._writer: Any = None

    def open(self) -> None:
        """Take tantivy's own lock."""
        # One thread: a write gives one segment, and the analyzer is the slower part.
        with _writing():
            self._writer = self._index.writer(heap_size=_HEAP, num_threads=1)

    def add(self, document: LexicalDocument) -> None:
        """Add a document."""
        import tantivy

        entry = tantivy.Document()
        text = " ".join(document.terms)
        try:
            entry.add_text(_BODY, text)
        except UnicodeEncodeError:
            entry.add_text(_BODY, text.encode("utf-8", "ignore").decode())
        entry.add_integer(_ROW, document.row)
        for facet in document.facets:
            entry.add_integer(_FACET, facet)
        with _writing():
            self._writer.add_document(entry)

    def remove(self, rows: Sequence[int]) -> None:
        """Remove the documents of these rows that were added earlier."""
        with _writing():
            for row in rows:
                self._writer.delete_documents_by_term(_ROW, row)

    def remove_from(self, row: int) -> None:
        """Remove the documents of this row and of all rows above it."""
        import tantivy

        above = tantivy.Query.range_query(
            self._schema, _ROW, tantivy.FieldType.Integer, lower_bound=row
        )
        with _writing():
            self._writer.delete_documents_by_query(above)

    def commit(self) -> None:
        """Make everything durable and visible to later searchers."""
        with _writing():
            self._writer.commit()

    def close(self) -> None:
        """Wait for merges of segments, and free tantivy's own lock."""
        writer, self._writer = self._writer, None
        if writer is not None:
            # What was committed stands, whatever becomes of a merge.
            with contextlib.suppress(PostingsWriteError), _writing():
                writer.wait_merging_threads()

    def abort(self) -> None:
        """Give up what was not committed."""
        if self._writer is not None:
            # After a full disk the writer may be dead already; nothing is left to undo then.
            with contextlib.suppress(PostingsWriteError), _writing():
                self._writer.rollback()
        self.close()


#: Row → node id, for those rows that are in the table.
Resolve = Callable[[Sequence[int]], Mapping[int, str]]


class PostingsView:
    """A searcher on one commit of the index."""

    def __init__(self, schema: Any, searcher: Any) -> None:
        self._schema = schema
        self._searcher = searcher

    def describe(self) -> dict[str, Any]:
        """Return engine and sizes."""
        return {
            "engine": "tantivy, BM25 with k1 = 1.2 and b = 0.75",
            "documents": int(self._searcher.num_docs),
            "segments": int(self._searcher.num_segments),
        }

    def search(
        self,
        terms: Sequence[str],
        k: int,
        *,
        resolve: Resolve,
        allowed: NDArray[np.int64] | None = None,
        facets: FacetTest | None = None,
    ) -> list[tuple[str, float]]:
        """Return the best documents by BM25.

        Args:
            terms: Terms of the query; a repeated one counts as often.
            k: Number of hits wanted.
            resolve: Looks rows up in the table; rows that are not there are no hits.
            allowed: Rows that may be returned, in rising order; ``None`` for all.
            facets: Test that every allowed row passes; makes the search faster, never different.

        Returns:
            Node id and score above 0, by score and then by node id.
        """
        wish = self._terms(terms)
        if wish is None or (allowed is not None and not len(allowed)):
            return []
        documents = max(1, int(self._searcher.num_docs))
        limit = k + 28
        query = wish
        if facets is not None:
            query = self._restricted(wish, self._facets(facets))
        elif allowed is not None:
            share = len(allowed) / documents
            if self._by_rows_is_cheaper(k, len(allowed), share):
                return self._search_rows(wish, allowed, k, resolve)
            limit = int(1.3 * limit / share)
        while True:
            # tantivy makes room for as many hits as are asked for.
            limit = min(limit, documents)
            rows, scores = self._hits(query, limit)
            complete = len(rows) < limit or limit == documents
            hits = _resolved(rows, scores, resolve, allowed, k=k, complete=complete)
            if hits is not None:
                return hits
            limit *= 8
            if allowed is not None and limit > 8 * len(allowed):
                return self._search_rows(wish, allowed, k, resolve)

    @staticmethod
    def _by_rows_is_cheaper(k: int, rows: int, share: float) -> bool:
        # Microseconds as measured on 100k documents: 2.7 per row of the set, 0.6 per hit read.
        return rows <= _FEW_ROWS and 2.7 * rows < 700 + 0.8 * k / share

    def _search_rows(
        self, wish: Any, allowed: NDArray[np.int64], k: int, resolve: Resolve
    ) -> list[tuple[str, float]]:
        query = self._restricted(wish, self._rows(allowed.tolist()))
        rows, scores = self._hits(query, len(allowed))
        return _resolved(rows, scores, resolve, allowed, k=k, complete=True) or []

    def _hits(self, query: Any, limit: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        with _reading():
            found = self._searcher.search(query, limit=limit, count=False).hits
            rows = self._searcher.fast_field_values(_ROW, [address for _, address in found])
        return (
            np.array(rows, dtype=np.int64),
            np.array([score for score, _ in found], dtype=np.float32),
        )

    def _terms(self, terms: Sequence[str]) -> Any:
        import tantivy

        clauses = []
        for term, times in Counter(terms).items():
            try:
                query = tantivy.Query.term_query(self._schema, _BODY, term, "freq")
            except UnicodeEncodeError:
                continue  # a lone surrogate is in no document of the index
            if times > 1:
                query = tantivy.Query.boost_query(query, float(times))
            clauses.append((tantivy.Occur.Should, query))
        return tantivy.Query.boolean_query(clauses) if clauses else None

    @staticmethod
    def _restricted(wish: Any, restriction: Any) -> Any:
        import tantivy

        # Constant score 0, so that a hit's score is the one of the unrestricted search.
        must = tantivy.Occur.Must
        silent = tantivy.Query.const_score_query(restriction, 0.0)
        return tantivy.Query.boolean_query([(must, silent), (must, wish)])

    def _rows(self, rows: Sequence[int]) -> Any:
        import tantivy

        if len(rows) > _FEW_ROWS:
            return tantivy.Query.term_set_query(self._schema, _ROW, rows)
        return self._any([self._equal(_ROW, row) for row in rows])

    def _facets(self, test: FacetTest) -> Any:
        import tantivy

        if isinstance(test, int):
            return self._equal(_FACET, test)
        members = [self._facets(member) for member in test.members]
        if test.every:
            return tantivy.Query.boolean_query([(tantivy.Occur.Must, query) for query in members])
        return self._any(members)

    def _equal(self, field: str, value: int) -> Any:
        import tantivy

        return tantivy.Query.term_query(self._schema, field, value, "basic")

    @staticmethod
    def _any(queries: Sequence[Any]) -> Any:
        import tantivy

        return tantivy.Query.boolean_query([(tantivy.Occur.Should, query) for query in queries])


def _resolved(
    rows: NDArray[np.int64],
    scores: NDArray[np.float32],
    resolve: Resolve,
    allowed: NDArray[np.int64] | None,
    *,
    k: int,
    complete: bool,
) -> list[tuple[str, float]] | None:
    """Return the best k hits, or ``None`` if documents that were not read could be among them.

    Args:
        rows: Documents by falling score.
        scores: Their scores.
        resolve: Looks rows up in the table.
        allowed: Rows that may be returned.
        k: Number of hits wanted.
        complete: Whether these are all documents with a term of the query.
    """
    unread = scores[-1] if len(scores) and not complete else -1.0
    if allowed is not None and len(rows):
        places = np.searchsorted(allowed, rows)
        places[places == len(allowed)] = 0
        keep = allowed[places] == rows
        rows, scores = rows[keep], scores[keep]
    hits: list[tuple[str, float]] = []
    start = 0
    while start < len(rows) and len(hits) < k:
        # As many as are missing, and whatever ties with the last of them.
        last = min(start + k - len(hits), len(rows)) - 1
        stop = int(np.searchsorted(-scores, -scores[last], side="right"))
        listed = rows[start:stop].tolist()
        ids = resolve(listed)
        found = zip(listed, scores[start:stop].tolist(), strict=True)
        hits += [(ids[row], score) for row, score in found if row in ids and score > 0]
        start = stop
    settled = complete or (len(hits) >= k and scores[start - 1] > unread)
    return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:k] if settled else None


def _schema() -> Any:
    import tantivy

    builder = tantivy.SchemaBuilder()
    # Frequencies without positions: BM25 needs no more, and the index is half the size.
    builder.add_text_field(_BODY, stored=False, tokenizer_name="whitespace", index_option="freq")
    # Signed: the binding's Document gives signed integers, and an unsigned field rejects them.
    builder.add_integer_field(_ROW, stored=False, indexed=True, fast=True)
    builder.add_integer_field(_FACET, stored=False, indexed=True, fast=False)
    return builder.build()
