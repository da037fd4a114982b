"""Provider plugins: the contract (`contract`), the registry that finds plugins, and the ones that ship with Shunter."""
