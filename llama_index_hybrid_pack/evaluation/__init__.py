"""Rankings to numbers: golden sets and metrics."""
