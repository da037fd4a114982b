from support.databases import database_url, postgres_database, sqlite_template, sqlite_url

__all__ = ["database_url", "postgres_database", "sqlite_template", "sqlite_url"]
