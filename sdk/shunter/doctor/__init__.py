"""Whether this installation is sound, and what to do where it is not."""

from shunter.doctor.checks import examine
from shunter.doctor.findings import Finding, Verdict

__all__ = ["Finding", "Verdict", "examine"]
