"""The only truth: jobs, events, the node ledger and all else that must survive, in SQL; big things in an object store."""
