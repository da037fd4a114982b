"""The team's own hosts over SSH (`provider`), and what every node reached by SSH needs (`connecting`, `calling`).

`asyncssh` is the extra `ssh` of the package; only modules of this room import it.
"""
