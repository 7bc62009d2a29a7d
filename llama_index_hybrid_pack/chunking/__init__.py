"""Documents to nodes: parsers that respect a document's structure."""
