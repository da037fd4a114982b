"""Big things by key: the object store, uploaded bundles, and what nobody needs any more."""
