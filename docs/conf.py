"""Sphinx configuration."""

project = "llama-index-hybrid-pack"
author = "The llama-index-hybrid-pack developers"
project_copyright = "2026, the llama-index-hybrid-pack developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "llama-index-hybrid-pack"
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
# Pydantic's own members would drown ours.
autodoc_default_options = {
    "members": True,
    "exclude-members": "model_config, model_post_init, model_fields, model_computed_fields",
}
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]
