"""Pure functions on ids, ranks and scores: no LlamaIndex, no input or output."""
