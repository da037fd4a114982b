"""What plugins of clouds are made of: calls, faults, reading of answers, names of nodes, first boots."""
