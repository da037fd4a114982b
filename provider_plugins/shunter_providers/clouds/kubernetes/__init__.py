"""Any Kubernetes cluster, and CoreWeave, whose nodes are pods."""
