"""Files that people write by hand, read into plain JSON values: JSON with comments, and YAML."""

from shunter.reading.comments import read_commented_json
from shunter.reading.yaml_files import read_yaml

__all__ = ["read_commented_json", "read_yaml"]
