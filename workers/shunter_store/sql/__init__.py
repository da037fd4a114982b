"""The two databases: engines, transactions, column types, many rows at once, migrations, copies."""
