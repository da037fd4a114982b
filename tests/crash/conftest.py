from support.databases import sqlite_template

__all__ = ["sqlite_template"]
