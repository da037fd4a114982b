"""Every verb of a client, as a flow: what is asked, how it is read, what is tried again. No I/O of its own."""
