"""DeepSpeed's own documents: what they may say, what contradicts what, and the one that a `training` runs with.

Only the standard library is used here, so that a node checks a file with the same rules before a program starts.
"""
