"""The agent: supervises one node's part of a training, and outlives the control plane.

Standard library only, Python 3.8 or newer, shipped as one zipapp. One thread (`agent.Agent`) decides and writes the
journal; around it stand a thread that talks to the service (`sync`), two that upload (`uploads`) and, while a
generation is being set up, one that prepares (`prepare`). Modules are imported late where they are slow to import,
since the agent's start is part of every launch.
"""

__version__ = "0.1.0"
