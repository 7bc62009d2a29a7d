"""Chunks counted with a real embedding model's tokenizer are read by it whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from llama_index.core import Document
from llama_index.core.schema import MetadataMode

from llama_index_hybrid_pack.chunking.structure import StructureNodeParser

pytestmark = pytest.mark.integration


def test_the_model_cuts_off_no_chunk(model_path: str, corpora_dir: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(model_path, device="cpu")
    parser = StructureNodeParser.for_embed_model(model)
    assert parser.chunk_size == model.max_seq_length
    lines = (corpora_dir / "anthropic_docs" / "documents.jsonl").read_text().splitlines()
    pages = [json.loads(line) for line in lines[:8]]
    documents = [
        Document(text=page["text"], id_=page["id"], metadata={"title": page["title"]})
        for page in pages
    ]
    nodes = parser.get_nodes_from_documents(documents)
    texts = [node.get_content(MetadataMode.EMBED) for node in nodes]
    lengths = [len(ids) for ids in model.tokenizer(texts, truncation=False)["input_ids"]]
    assert max(lengths) <= model.max_seq_length
    assert sum(lengths) / len(lengths) > 0.6 * model.max_seq_length
