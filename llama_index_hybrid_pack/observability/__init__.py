"""Events and the retrieval trace: what each stage did, how long it took, and what failed."""
