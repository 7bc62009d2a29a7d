"""Nodes to searchable: analyzer, filters, embedding model and stores."""
