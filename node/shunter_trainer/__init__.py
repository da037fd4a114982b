"""The declarative `training` workload on the node: `python -m shunter_trainer`, one process a rank.

Imports torch, numpy, safetensors, the standard library and `shunter_schemas`, nothing else. The rooms, and the one
direction in which they know each other:

    run -> loop -> strategies, data, checkpoint, guards -> models, optim -> gang, places, failures
"""
