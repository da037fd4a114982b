from support.databases import database, database_url, postgres_database, sqlite_template, sqlite_url

__all__ = ["database", "database_url", "postgres_database", "sqlite_template", "sqlite_url"]
