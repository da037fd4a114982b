"""Documents as people like to read them: YAML or JSON, each field with the words of the schema beside it."""

from shunter.writing.commented import Style, commented

__all__ = ["Style", "commented"]
