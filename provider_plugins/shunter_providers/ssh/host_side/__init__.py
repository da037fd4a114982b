"""What runs on a host, sent there over the connection with each call: standard library only, Python 3.8 or newer.

Every word that comes from a user travels as JSON on the standard input. The command line that the host's shell reads is
always the same one. The program starts anew with every call: what few calls need is imported where it is used.
"""
