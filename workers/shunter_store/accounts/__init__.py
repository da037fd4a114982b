"""Accounts at providers: when they were read, their pace, and what they cost."""
