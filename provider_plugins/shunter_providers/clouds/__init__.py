"""Clouds over their REST APIs, one file each; what they share lies beside them."""
