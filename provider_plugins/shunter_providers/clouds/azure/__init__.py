"""Azure virtual machines, over Resource Manager: everything of a node deleted with it."""
