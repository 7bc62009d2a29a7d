"""After any history the embedded store answers like one that was built from what is left."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from llama_index.core.schema import TextNode

from llama_index_hybrid_pack.indexing.stores.base import BM25, DENSE, LegHits, SearchRequest
from llama_index_hybrid_pack.indexing.stores.local import LocalHybridStore
from llama_index_hybrid_pack.testing.builders import embed, make_node, where

#: Every write syncs the disk; a folder in memory makes that cheap.
FOLDER = "/dev/shm" if Path("/dev/shm").is_dir() else None
WORDS = ["refund", "invoice", "E-504", "café", "shipping", "C++", "delay", "東京"]
IDS = [f"n{number}" for number in range(9)]
QUERIES = ["refund", "E-504 delay", "shipping invoice café", "東京", "nothing here"]
DEEP = 50

texts = st.lists(st.sampled_from(WORDS), min_size=0, max_size=6).map(" ".join)
nodes = st.builds(
    lambda node_id, text, tenant: make_node(
        node_id, text, doc_id=f"doc-{tenant}", metadata={"tenant": tenant}, embedding=embed(text)
    ),
    st.sampled_from(IDS),
    texts,
    st.sampled_from(["red", "blue"]),
)
batches = st.lists(nodes, min_size=1, max_size=4, unique_by=lambda node: node.node_id)


def answers(store: LocalHybridStore, k: int) -> list[dict[str, LegHits]]:
    found = []
    for query in QUERIES:
        for filters in (None, where("tenant", "red")):
            request = SearchRequest(
                query_str=query,
                query_embedding=embed(query),
                dense_top_k=k,
                lexical_top_k=k,
                filters=filters,
            )
            found.append(dict(store.search(request).legs))
    return found


class History(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="history-", dir=FOLDER))
        self.model: dict[str, TextNode] = {}

    @initialize()
    def open(self) -> None:
        self.store = LocalHybridStore(self.folder / "store", unknown_fields="missing")

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @rule(batch=batches)
    def add(self, batch: list[TextNode]) -> None:
        self.store.add(batch)
        self.model.update({node.node_id: node for node in batch})

    @rule(batch=batches, gone=st.lists(st.sampled_from(IDS), max_size=4))
    def apply(self, batch: list[TextNode], gone: list[str]) -> None:
        self.store.apply(batch, delete_node_ids=gone)
        for node_id in gone:
            self.model.pop(node_id, None)
        self.model.update({node.node_id: node for node in batch})

    @rule(gone=st.lists(st.sampled_from(IDS), min_size=1, max_size=4))
    def delete_nodes(self, gone: list[str]) -> None:
        self.store.delete_nodes(gone)
        for node_id in gone:
            self.model.pop(node_id, None)

    @rule(tenant=st.sampled_from(["red", "blue"]))
    def delete_document(self, tenant: str) -> None:
        self.store.delete(f"doc-{tenant}")
        self.model = {
            node_id: node
            for node_id, node in self.model.items()
            if node.ref_doc_id != f"doc-{tenant}"
        }

    @precondition(lambda self: self.model)
    @rule(data=st.data(), tenant=st.sampled_from(["red", "blue"]))
    def update_metadata(self, data: st.DataObject, tenant: str) -> None:
        node_id = data.draw(st.sampled_from(sorted(self.model)))
        self.store.update_metadata({node_id: {"tenant": tenant}})
        node = self.model[node_id].model_copy()
        node.metadata = {"tenant": tenant}
        self.model[node_id] = node

    @rule()
    def clear(self) -> None:
        self.store.clear()
        self.model = {}

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = LocalHybridStore(self.folder / "store", unknown_fields="missing")

    @rule()
    def optimize(self) -> None:
        self.store.optimize()
        self.equals_a_fresh_build(scores=True)

    @invariant()
    def finds_what_is_there(self) -> None:
        if hasattr(self, "store"):
            assert self.store.count() == len(self.model)
            self.equals_a_fresh_build(scores=False)

    def equals_a_fresh_build(self, *, scores: bool) -> None:
        shutil.rmtree(self.folder / "fresh", ignore_errors=True)
        with LocalHybridStore(self.folder / "fresh", unknown_fields="missing") as fresh:
            if self.model:
                fresh.add([self.model[node_id] for node_id in sorted(self.model)])
            for mine, theirs in zip(answers(self.store, DEEP), answers(fresh, DEEP), strict=True):
                assert sorted(mine[BM25].ids) == sorted(theirs[BM25].ids)
                # Dense scores never depend on the history, so the order does not either.
                assert mine[DENSE] == theirs[DENSE]
                if scores:
                    assert mine[BM25].ids == theirs[BM25].ids
                    np.testing.assert_allclose(mine[BM25].scores, theirs[BM25].scores, rtol=1e-6)
            if scores and self.model:
                assert answers(self.store, 2) == answers(fresh, 2)


TestHistory = History.TestCase
TestHistory.settings = settings(
    max_examples=int(os.environ.get("HYBRID_PACK_EXAMPLES", "10")),
    stateful_step_count=10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
