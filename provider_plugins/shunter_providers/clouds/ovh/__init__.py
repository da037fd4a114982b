"""OVHcloud, whose nodes are OpenStack servers."""
