"""Amazon EC2, driven through libcloud: instances, capacity, spot, prices."""
