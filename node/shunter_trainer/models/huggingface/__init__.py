"""Models of the `transformers` library: from a configuration, or from a local folder of weights.

`configuration` reads what the model is, `building` makes it without memory, `fresh` and `pretrained` give it its first
values, `weight_files` reads the files. Nothing here ever downloads anything or runs code that came with the weights.
"""
