"""HybridPack: one folder, one config, the whole way; and clear errors when they do not fit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from llama_index.core import Document, Settings, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

from llama_index_hybrid_pack import HybridPack, PackOptions
from llama_index_hybrid_pack.answering.passages import NOT_FOUND
from llama_index_hybrid_pack.config import RankingOptions, RetrievalOptions
from llama_index_hybrid_pack.errors import (
    ConfigError,
    EmbeddingError,
    FilterError,
    StoreCorruptError,
    StoreError,
    StoreVersionError,
)
from llama_index_hybrid_pack.indexing.record import FILE_NAME
from llama_index_hybrid_pack.metadata import stage_scores
from llama_index_hybrid_pack.testing.fakes import HashEmbedding, ScriptedLLM

DOCUMENTS = [
    Document(
        id_="refunds.md",
        text="# Refunds\n\nRefunds take ten days.\n\n## Cards\n\nCards are refunded first.",
        metadata={"team": "billing", "year": 2024},
    ),
    Document(
        id_="codes.md",
        text="# Error codes\n\n| code | meaning |\n|---|---|\n| E-504 | The gateway timed out. |\n",
        metadata={"team": "support", "year": 2023},
    ),
]


class CountingEmbedding(HashEmbedding):
    """Counts the texts that it embeds."""

    embedded: list[str] = []

    def _get_text_embedding(self, text: str) -> list[float]:
        self.embedded.append(text)
        return super()._get_text_embedding(text)


class BrokenEmbedding(HashEmbedding):
    """Fails when it has embedded some texts."""

    good: int = 1

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        if self.good <= 0:
            raise ConnectionError("the embedding service is down")
        self.good -= 1
        return super()._get_text_embeddings(texts)


def make(path: Path, model: BaseEmbedding | None = None) -> HybridPack:
    return HybridPack.from_documents(DOCUMENTS, path=path, embed_model=model or HashEmbedding())


def test_ingested_documents_are_found_by_word_and_by_code(tmp_path: Path) -> None:
    pack = make(tmp_path / "store")
    assert pack.search("How long do refunds take?")[0].node.ref_doc_id == "refunds.md"
    assert pack.search("E-504")[0].node.ref_doc_id == "codes.md"


def test_a_store_opens_again_with_its_own_options(tmp_path: Path) -> None:
    options = PackOptions(ranking=RankingOptions(top_n=1))
    HybridPack.from_documents(
        DOCUMENTS, path=tmp_path / "store", embed_model=HashEmbedding(), options=options
    )
    again = HybridPack.open(tmp_path / "store", embed_model=HashEmbedding())
    assert again.options == options
    assert len(again.search("refunds cards")) == 1


def test_ingesting_again_embeds_nothing(tmp_path: Path) -> None:
    model = CountingEmbedding(embedded=[])
    pack = make(tmp_path, model)
    first = len(model.embedded)
    report = pack.ingest(DOCUMENTS)
    assert len(model.embedded) == first > 0
    assert (report.embedded, report.updated, report.deleted) == (0, 0, 0)
    assert report.unchanged == pack.store.count() == report.nodes


def test_a_changed_document_replaces_its_old_passages(tmp_path: Path) -> None:
    pack = make(tmp_path)
    shorter = Document(id_="refunds.md", text="# Refunds\n\nRefunds take three weeks.")
    report = pack.ingest([shorter])
    assert report.deleted > 0
    texts = [node.get_content() for node in pack.store.nodes_of(["refunds.md"])]
    assert not any("ten days" in text or "Cards" in text for text in texts)
    assert "three weeks" in pack.search("refunds take")[0].text


def test_a_change_of_metadata_alone_embeds_nothing_but_is_filtered_by_at_once(
    tmp_path: Path,
) -> None:
    model = CountingEmbedding(embedded=[])
    hidden = [
        Document(
            id_=document.id_,
            text=document.text,
            metadata=document.metadata,
            excluded_embed_metadata_keys=["team", "year"],
        )
        for document in DOCUMENTS
    ]
    pack = HybridPack.from_documents(hidden, path=tmp_path, embed_model=model)
    before = len(model.embedded)
    hidden[0].metadata["team"] = "finance"
    report = pack.ingest(hidden)
    assert len(model.embedded) == before
    assert report.updated > 0
    finance = MetadataFilters(filters=[MetadataFilter(key="team", value="finance")])
    assert {hit.node.ref_doc_id for hit in pack.search("refunds", filters=finance)} == {
        "refunds.md"
    }


def test_an_emptied_document_leaves_no_passage(tmp_path: Path) -> None:
    pack = make(tmp_path)
    pack.ingest([Document(id_="refunds.md", text="  \n")])
    assert pack.store.nodes_of(["refunds.md"]) == []


def test_documents_of_one_id_are_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    pack = HybridPack.open_or_create(tmp_path, embed_model=HashEmbedding())
    with pytest.raises(ConfigError, match=r"a\.md"):
        pack.ingest([Document(id_="a.md", text="one"), Document(id_="a.md", text="two")])
    assert pack.store.count() == 0


def test_a_failing_model_leaves_the_last_state_searchable_and_a_retry_completes(
    tmp_path: Path,
) -> None:
    pack = make(tmp_path)
    long = [Document(id_=f"d{n}", text=f"Guide number {n} on shipping.") for n in range(600)]
    pack.embed_model = BrokenEmbedding(good=20)
    with pytest.raises(ConnectionError, match="down"):
        pack.ingest(long)
    assert pack.search("refunds")[0].node.ref_doc_id == "refunds.md"
    stored = pack.store.count()
    pack.embed_model = HashEmbedding()
    report = pack.ingest(long)
    assert report.nodes == 600
    assert report.unchanged == stored - len(pack.store.nodes_of(["refunds.md", "codes.md"]))
    assert len(pack.store.nodes_of([f"d{n}" for n in range(600)])) == 600


async def test_async_gives_the_same(tmp_path: Path) -> None:
    pack = make(tmp_path)
    sync = await asyncio.to_thread(pack.search, "refunds for cards")
    same = await pack.asearch("refunds for cards")
    assert [(hit.node_id, hit.score) for hit in same] == [(h.node_id, h.score) for h in sync]
    assert str(await pack.arun("refunds")) == str(await asyncio.to_thread(pack.run, "refunds"))


def test_without_an_llm_the_answer_is_the_passages_with_sources(tmp_path: Path) -> None:
    answer = make(tmp_path).run("refunds")
    assert "Refunds take ten days." in str(answer)
    assert answer.source_nodes


def test_with_an_llm_it_writes_the_answer_from_the_passages(tmp_path: Path) -> None:
    llm = ScriptedLLM(answers=["Ten days."])
    answer = make(tmp_path).as_query_engine(llm=llm).query("How long do refunds take?")
    assert str(answer) == "Ten days."
    assert "Refunds take ten days." in llm.prompts[0]


def test_the_llm_of_settings_is_used_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Settings, "_llm", ScriptedLLM(answers=["From settings."]))
    assert str(make(tmp_path).run("refunds")) == "From settings."


def test_nothing_found_is_said(tmp_path: Path) -> None:
    pack = HybridPack.open_or_create(tmp_path, embed_model=HashEmbedding())
    assert pack.search("anything") == []
    assert str(pack.run("anything")) == NOT_FOUND
    assert "No passage" in str(pack.explain("anything"))


def test_filters_hold_on_both_legs_and_an_unknown_field_is_an_error(tmp_path: Path) -> None:
    pack = make(tmp_path)
    support = MetadataFilters(filters=[MetadataFilter(key="team", value="support")])
    assert {hit.node.ref_doc_id for hit in pack.search("refunds", filters=support)} == {"codes.md"}
    typo = MetadataFilters(filters=[MetadataFilter(key="taem", value="support")])
    with pytest.raises(FilterError, match="team"):
        pack.search("refunds", filters=typo)


def test_explain_shows_each_leg_and_the_fusion(tmp_path: Path) -> None:
    trace = make(tmp_path).explain("E-504")
    assert {"dense", "bm25", "fusion"} <= set(trace.stage_names)
    assert "codes.md" in str(trace)
    assert trace.to_dict()["query"] == "E-504"


def test_every_hit_carries_the_rank_of_every_stage(tmp_path: Path) -> None:
    top = make(tmp_path).search("E-504")[0]
    assert stage_scores(top.node)["bm25"]["rank"] == 1
    assert stage_scores(top.node)["fusion"]["rank"] == 1


def test_the_modules_work_alone_in_llama_index(tmp_path: Path) -> None:
    modules = make(tmp_path).get_modules()
    assert modules["fusion_retriever"].retrieve("refunds")
    index = VectorStoreIndex.from_vector_store(modules["store"], embed_model=modules["embed_model"])
    assert index.as_retriever(similarity_top_k=1).retrieve("refunds")
    assert modules["node_parser"].get_nodes_from_documents(DOCUMENTS)
    assert str(modules["query_engine"].query("refunds"))


def test_the_ladder_holds_each_step(tmp_path: Path) -> None:
    ladder = make(tmp_path).ladder(top_n=3)
    assert list(ladder) == ["BM25", "dense", "hybrid"]
    assert all(len(retriever.retrieve("refunds cards")) <= 3 for retriever in ladder.values())


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_a_weight_at_its_end_leaves_the_other_leg_out(tmp_path: Path, weight: float) -> None:
    options = PackOptions(retrieval=RetrievalOptions(dense_weight=weight))
    pack = HybridPack.from_documents(
        DOCUMENTS, path=tmp_path, embed_model=HashEmbedding(), options=options
    )
    (leg,) = pack.explain("refunds").legs
    assert leg.name == ("dense" if weight else "bm25")


def test_mmr_is_one_option_away(tmp_path: Path) -> None:
    options = PackOptions(ranking=RankingOptions(mmr_lambda=0.5, top_n=2))
    pack = HybridPack.from_documents(
        DOCUMENTS, path=tmp_path, embed_model=HashEmbedding(), options=options
    )
    hits = pack.search("refunds cards")
    assert len(hits) == 2
    assert "mmr" in stage_scores(hits[0].node)


def test_opening_nothing_says_how_to_make_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="hybrid-pack ingest"):
        HybridPack.open(tmp_path / "none", embed_model=HashEmbedding())
    assert not (tmp_path / "none").exists()


def test_another_embedding_model_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(ConfigError, match="hash"):
        HybridPack.open(tmp_path, embed_model=HashEmbedding(model_name="other"))
    with pytest.raises(ConfigError, match="HashEmbedding"):
        HybridPack.open(tmp_path)
    with pytest.raises(EmbeddingError, match="64"):
        HybridPack.open(tmp_path, embed_model=HashEmbedding(dimensions=8)).search("refunds")


def test_another_language_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(ConfigError, match="language"):
        HybridPack.open(tmp_path, embed_model=HashEmbedding(), options=PackOptions(language="de"))


def test_a_record_of_a_newer_version_or_a_damaged_one_is_named(tmp_path: Path) -> None:
    make(tmp_path)
    record = tmp_path / FILE_NAME
    text = record.read_text()
    record.write_text(text.replace('"format": 1', '"format": 99'))
    with pytest.raises(StoreVersionError, match="99"):
        HybridPack.open(tmp_path, embed_model=HashEmbedding())
    record.write_text(text[:20])
    with pytest.raises(StoreCorruptError, match="backup"):
        HybridPack.open(tmp_path, embed_model=HashEmbedding())


def test_a_probability_without_a_cross_encoder_is_refused(tmp_path: Path) -> None:
    options = PackOptions(ranking=RankingOptions(min_probability=0.5))
    pack = HybridPack.from_documents(
        DOCUMENTS, path=tmp_path, embed_model=HashEmbedding(), options=options
    )
    with pytest.raises(ConfigError, match="cross_encoder"):
        pack.search("refunds")


@pytest.mark.parametrize("top_n", [0, -1])
def test_a_number_of_hits_below_one_is_refused(tmp_path: Path, top_n: int) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        make(tmp_path).search("refunds", top_n=top_n)
