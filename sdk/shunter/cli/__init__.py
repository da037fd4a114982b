"""The command line. Importing it loads typer only; whatever talks to a service is imported by the command that does."""

from shunter.cli.main import main

__all__ = ["main"]
