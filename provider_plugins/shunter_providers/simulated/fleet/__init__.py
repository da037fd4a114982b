"""Thousands of agents in one process: they speak the nodes' protocol over HTTP as real ones do, and train nothing.

part        what an agent does with one generation: when it begins, how far it is, how it ends
played      one agent: its journal, what it was told, what it says next. No I/O
line        a kept HTTP connection
ears        what tells agents at once that something else is wanted of them
uploading   what goes up by signed URLs
memory      what a fleet that was killed goes on with
player      the process: reads the cloud's books, gives each agent its turn
keeper      starts the process where none runs
"""
