"""The planner: which offer a job takes, and why not the others. Pure functions over frozen values."""

from shunter_planner.plan import plan
from shunter_planner.values import Block, Candidate, Facts, History, Plan, Refusal, Rejection, Unavailable

__all__ = ["Block", "Candidate", "Facts", "History", "Plan", "Refusal", "Rejection", "Unavailable", "plan"]
