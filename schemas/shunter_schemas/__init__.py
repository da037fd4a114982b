"""The words that every part of Shunter shares: the job document, the API's resources, the node protocol.

Nothing here does I/O and nothing but pydantic is imported, so that every other package can depend on it.
"""
