"""Memory of one GPU by part, in bytes: one function a part, each with the source of its formula."""
