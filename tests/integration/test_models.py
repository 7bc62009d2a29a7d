"""The packaged embedding model for real: dense vectors, token vectors, late interaction."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index_hybrid_pack.indexing.embedding import SentenceTransformerEmbedding
from llama_index_hybrid_pack.ranking.late_interaction import LateInteractionReranker
from llama_index_hybrid_pack.ranking.mmr import MMRPostprocessor
from llama_index_hybrid_pack.text import get_tokenizer

pytestmark = pytest.mark.integration

PASSAGES = {
    "refund": "We pay a refund within ten days after the parcel is back in our warehouse.",
    "refund copy": "A refund is paid within ten days once the parcel is back in our warehouse.",
    "gateway": "Error E-504 means that the gateway did not answer in time.",
    "password": "To reset your password, open the login page and choose Forgot password.",
    "shipping": "Shipping abroad costs nine euros and takes up to two weeks.",
}


@pytest.fixture(scope="module")
def embedding(model_path: str) -> SentenceTransformerEmbedding:
    return SentenceTransformerEmbedding(model_name=model_path, device="cpu")


def hits(embedding: SentenceTransformerEmbedding | None = None) -> list[NodeWithScore]:
    vectors = embedding.get_text_embedding_batch(list(PASSAGES.values())) if embedding else None
    return [
        NodeWithScore(
            node=TextNode(id_=name, text=text, embedding=vectors[i] if vectors else None),
            score=0.5,
        )
        for i, (name, text) in enumerate(PASSAGES.items())
    ]


def test_the_model_is_what_it_says(embedding: SentenceTransformerEmbedding) -> None:
    assert embedding.dimensions == 384
    assert embedding.max_tokens == 254  # 256 less [CLS] and [SEP]
    assert get_tokenizer(embedding.tokenizer_name).count("unbelievable") == 1


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("When do I get my money back?", "refund"),
        ("The server timed out, what does it mean?", "gateway"),
        ("I cannot sign in any more", "password"),
    ],
)
def test_dense_vectors_find_the_meaning(
    embedding: SentenceTransformerEmbedding, question: str, answer: str
) -> None:
    query = embedding.get_query_embedding(question)
    texts = embedding.get_text_embedding_batch(list(PASSAGES.values()))
    best = int(np.argmax(np.array(texts) @ np.array(query)))
    assert list(PASSAGES)[best] in {answer, f"{answer} copy"}


def test_every_token_has_a_unit_vector(embedding: SentenceTransformerEmbedding) -> None:
    texts = list(PASSAGES.values())
    counts = get_tokenizer(embedding.tokenizer_name).count_many(texts)
    vectors = embedding.token_embeddings(texts, is_query=False)
    assert [rows.shape for rows in vectors] == [(count + 2, 384) for count in counts]
    for rows in vectors:
        assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(len(rows)), abs=1e-5)


def test_late_interaction_puts_the_answer_first_and_is_deterministic(
    embedding: SentenceTransformerEmbedding,
) -> None:
    reranker = LateInteractionReranker(embed_model=embedding, top_n=2)
    question = "How many days until the refund is paid?"
    out = reranker.postprocess_nodes(hits(), query_str=question)
    assert {hit.node.node_id for hit in out} == {"refund", "refund copy"}
    assert reranker.postprocess_nodes(hits(), query_str=question) == out


def test_mmr_on_real_vectors_shows_the_copy_later(
    embedding: SentenceTransformerEmbedding,
) -> None:
    question = "How many days until the refund is paid?"
    out = MMRPostprocessor(
        relevance="query", embed_model=embedding, lambda_mult=0.5, top_n=None
    ).postprocess_nodes(hits(embedding), query_str=question)
    order = [hit.node.node_id for hit in out]
    copies = {"refund", "refund copy"}
    assert order[0] in copies
    assert order[1] not in copies


def test_a_fresh_process_works_without_the_hub_and_keeps_its_streams_clean() -> None:
    code = (
        "from llama_index_hybrid_pack.indexing.embedding import default_embed_model;"
        "from llama_index_hybrid_pack.ranking.late_interaction import LateInteractionReranker;"
        "from llama_index.core.schema import NodeWithScore, TextNode;"
        "import json;"
        "out = LateInteractionReranker(embed_model=default_embed_model()).postprocess_nodes("
        "[NodeWithScore(node=TextNode(id_='a', text='ten days'), score=1.0)], query_str='when?');"
        "print(json.dumps([hit.node.node_id for hit in out]))"
    )
    environment = {k: v for k, v in os.environ.items() if k != "HF_HUB_OFFLINE"}
    # A hub that cannot be reached: any attempt would fail or wait.
    environment |= {"HF_ENDPOINT": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
        env=environment,
        cwd=Path(__file__).parent,
    )
    assert json.loads(done.stdout) == ["a"]
    assert done.stderr == ""
