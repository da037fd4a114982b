"""The only truth: jobs, events and the node ledger in SQL; big things in an object store."""
