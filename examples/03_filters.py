"""Metadata filters in the embedded store, through LlamaIndex's VectorStoreIndex.

A filter restricts the search itself, on the dense and the BM25 leg alike: as many hits come back
as were asked for, if there are that many. Each page's front matter has become metadata.

Run: python examples/03_filters.py
"""

from __future__ import annotations

from pathlib import Path

from llama_index.core import VectorStoreIndex
from llama_index.core.vector_stores import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_index_hybrid_pack import (
    LocalHybridStore,
    SentenceTransformerEmbedding,
    StructureNodeParser,
)
from llama_index_hybrid_pack.chunking.reader import read_folder
from llama_index_hybrid_pack.errors import FilterError

HELP_CENTRE = Path(__file__).parent / "data" / "help_centre"


def where(
    *filters: MetadataFilter | MetadataFilters, condition: FilterCondition = FilterCondition.AND
) -> MetadataFilters:
    """Return filters joined by a condition."""
    return MetadataFilters(filters=list(filters), condition=condition)


def show(
    index: VectorStoreIndex, title: str, question: str, filters: MetadataFilters | None = None
) -> None:
    """Print the three best passages under a filter."""
    retriever = index.as_retriever(
        similarity_top_k=3, vector_store_query_mode="hybrid", alpha=0.5, filters=filters
    )
    print(f"\n{title}")
    for hit in retriever.retrieve(question):
        print(
            f"  {hit.score:.3f}  {hit.node.metadata['file_path']}: {hit.node.metadata['heading']}"
        )


def main() -> None:
    """Ask one question under several filters."""
    embed_model = SentenceTransformerEmbedding()
    # A declared date is compared as a date; undeclared fields are compared as they are.
    store = LocalHybridStore(metadata_schema={"updated": "date"})
    index = VectorStoreIndex.from_vector_store(store, embed_model=embed_model)
    parser = StructureNodeParser.for_embed_model(embed_model)
    index.insert_nodes(parser.get_nodes_from_documents(read_folder(HELP_CENTRE).documents))

    refunds = "How many days do I have to return hardware?"
    print(f"Question: {refunds}")
    show(index, "No filter: two versions of the policy compete", refunds)
    show(
        index,
        "status != superseded (pages without a status pass)",
        refunds,
        where(MetadataFilter(key="status", value="superseded", operator=FilterOperator.NE)),
    )

    limits = "How many calls per minute are allowed?"
    print(f"\nQuestion: {limits}")
    show(
        index,
        "updated since June 2024, and for developers or in the category security",
        limits,
        where(
            MetadataFilter(key="updated", value="2024-06-01", operator=FilterOperator.GTE),
            where(
                # 'audience' is a list in the front matter.
                MetadataFilter(
                    key="audience", value="developers", operator=FilterOperator.CONTAINS
                ),
                MetadataFilter(key="category", value="security"),
                condition=FilterCondition.OR,
            ),
        ),
    )

    print("\nA filter that cannot be honoured is refused, not ignored:")
    try:
        show(index, "ctegory = billing", limits, where(MetadataFilter(key="ctegory", value="x")))
    except FilterError as error:
        print(f"  FilterError: {error}")
    store.close()


if __name__ == "__main__":
    main()
