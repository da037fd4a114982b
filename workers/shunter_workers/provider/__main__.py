"""`python -m shunter_workers.provider`, which `shunter provider` starts."""

from __future__ import annotations

from shunter_workers.provider.commands import app

app(prog_name="shunter provider")
