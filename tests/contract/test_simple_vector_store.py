"""What the store contract catches: its exact result over LlamaIndex's SimpleVectorStore.

CONTRIBUTING shows this table. If a newer LlamaIndex mends a fault, this test says which.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path

import pytest

SUITE = Path(__file__).with_name("simple_vector_store_suite.py")
ROOT = SUITE.parents[2]

#: Failing test → what SimpleVectorStore of llama-index-core 0.14.25 does instead.
FAULTS = {
    # adding
    "a_bad_vector_in_a_batch_adds_nothing[too short]": "accepted; every later query fails",
    "a_bad_vector_in_a_batch_adds_nothing[too long]": "accepted; every later query fails",
    "a_bad_vector_in_a_batch_adds_nothing[empty]": "accepted; every later query fails",
    "a_bad_vector_in_a_batch_adds_nothing[NaN]": "accepted",
    "a_bad_vector_in_a_batch_adds_nothing[infinite]": "accepted",
    "a_missing_vector_in_a_batch_adds_nothing": "the nodes before it stay",
    "a_store_that_refused_its_first_batch_still_works": "mixed dimensions are accepted",
    "a_zero_vector_gives_no_broken_score": "scores NaN",
    "two_different_nodes_of_one_id_in_one_call_are_refused": "the last one wins silently",
    "a_node_changed_after_add_does_not_change_the_store": "the vector is kept by reference",
    "odd_characters_in_ids_and_values_are_kept": "doc_ids is ignored",
    "odd_field_names_can_be_stored_and_asked_for": "fields doc_id and ref_doc_id are overwritten",
    # deleting
    "delete_nodes_without_any_restriction_deletes_nothing": "deletes everything",
    # searching
    "k_below_one_is_an_error[default]": "0 returns every node",
    "k_below_one_is_an_error[mmr]": "0 is accepted",
    "scores_are_plain_floats_in_falling_order[default]": "numpy floats",
    "scores_are_plain_floats_in_falling_order[mmr]": "numpy floats",
    "equal_scores_are_ordered_by_node_id[default]": "order of ties depends on the heap",
    "equal_scores_are_ordered_by_node_id[mmr]": "order of ties depends on the order of adding",
    "a_query_vector_that_does_not_fit_is_an_error": "NaN gives NaN scores",
    "mmr_remembers_all_earlier_picks": "only the last pick counts: a near-copy returns",
    "mmr_at_threshold_one_is_the_dense_order": "mmr_threshold of the query is ignored",
    "mmr_at_threshold_zero_avoids_what_was_picked": "mmr_threshold of the query is ignored",
    # filters
    "operator[==]": "a list never equals its element; booleans match no text",
    "operator[!=]": "a list never equals its element; booleans match no text",
    "operator[>]": "another type raises TypeError",
    "operator[<]": "another type raises TypeError",
    "operator[in]": "list elements are not seen",
    "operator[any]": "matches parts of single texts",
    "operator[all]": "'all of nothing' matches",
    "operator[contains]": "matches parts of single texts",
    "operator[text_match]": "another type raises TypeError",
    "operator[text_match_insensitive]": "no Unicode case folding",
    "groups_of_conditions": "an empty OR lets everything through",
    "groups_in_groups": "nested groups raise ValueError",
    "filters_that_cannot_be_honoured_are_refused": "'in' with one text looks for parts of it",
    "an_unknown_field_is_refused[default]": "a misspelt != lets everything through",
    "an_unknown_field_is_refused[mmr]": "a misspelt != lets everything through",
    "one_field_may_hold_values_of_several_types": "list elements are not seen",
    # scopes
    "ids_and_filters_are_joined_by_and[default]": "doc_ids is ignored",
    "ids_and_filters_are_joined_by_and[mmr]": "doc_ids is ignored",
    "restricted_search_still_finds_k[default]": "doc_ids is ignored",
    "restricted_search_still_finds_k[mmr]": "doc_ids is ignored",
    "access_lists_are_exact[default]": "group 'hr' sees a node of the single group 'hr-admins'",
    "access_lists_are_exact[mmr]": "group 'hr' sees a node of the single group 'hr-admins'",
    # event loop
    "async_calls_leave_the_event_loop_free": "the async methods are the blocking ones",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Outcome → names of the suite's tests, in a process of its own."""
    report = tmp_path_factory.mktemp("simple") / "report.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(SUITE),
        "-q",
        "--tb=no",
        "-p",
        "no:cacheprovider",
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))}
    finished = subprocess.run(
        [*command, f"--junitxml={report}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert report.is_file(), finished.stdout + finished.stderr
    outcomes: dict[str, set[str]] = defaultdict(set)
    for case in ET.parse(report).iter("testcase"):
        name = case.attrib["name"].removeprefix("test_")
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        outcomes["".join(kinds) or "passed"].add(name)
    return outcomes


def _without_colour(name: str) -> str:
    """Cut ``sync``/``async`` out of a parametrised name."""
    return re.sub(r"\[(?:a?sync)(?:\]|-)", lambda m: "" if m[0].endswith("]") else "[", name)


def test_exactly_the_known_faults_are_caught(results: dict[str, set[str]]) -> None:
    assert {_without_colour(name) for name in results["failure"]} == set(FAULTS)
    assert results["error"] == set()


def test_the_sync_and_the_async_colour_are_judged_alike(results: dict[str, set[str]]) -> None:
    for names in results.values():
        sync = {name for name in names if "[sync" in name}
        assert {name.replace("[sync", "[async") for name in sync} == {
            name for name in names if "[async" in name
        }


def test_what_the_store_does_well_passes(results: dict[str, set[str]]) -> None:
    passed = {_without_colour(name) for name in results["passed"]}
    assert not passed & set(FAULTS)
    for name in (
        "delete_removes_exactly_one_document",
        "dense_scores_are_the_cosine",
        "no_mode_shows_another_tenants_nodes[default]",
        "lookalike_tenants_stay_apart[default]",
        "operator[is_empty]",
        "operator[nin]",
        "a_mode_that_the_store_lacks_is_refused",
    ):
        assert name in passed, name


def test_what_the_store_declares_to_lack_is_skipped(results: dict[str, set[str]]) -> None:
    skipped = {_without_colour(name) for name in results["skipped"]}
    assert "text_search_finds_words_by_bm25" in skipped
    assert "get_nodes_by_filter" in skipped
