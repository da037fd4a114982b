"""`python -m shunter_trainer.rehearsal --document FILE …`: what `shunter rehearse` starts.

The document is one that was checked already; folders in it are absolute. Prints lines for people, or with `--json` one
object, and exits with 0 when everything was proven, 1 when something was not, 2 when it cannot be rehearsed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shunter_trainer.failures import UserFault
from shunter_trainer.rehearsal.acts import Finding, Play
from shunter_trainer.rehearsal.cutting import Cut
from shunter_trainer.rehearsal.preparing import Unrehearsable, prepare


def main() -> int:
    """The exit code."""
    options = _options()
    document = json.loads(options.document.read_text(encoding="utf-8"))
    say: Callable[[str], None] = (lambda text: None) if options.json else (lambda text: print(text, flush=True))
    with tempfile.TemporaryDirectory(prefix="shunter-rehearsal-") as temporary:
        folder = options.keep or Path(temporary)
        try:
            made, places = prepare(document, folder, narrow=options.narrow)
        except (Unrehearsable, UserFault) as refused:
            return _refuse(str(refused), as_json=options.json)
        for note in made.notes:
            say(f"  cut: {note}")
        findings = []
        for finding in Play(made.document, places, folder, options.act_s).findings():
            say(f"  {'ok  ' if finding.ok else 'FAIL'} {finding.name}: {finding.detail}")
            findings.append(finding)
    proven = all(finding.ok for finding in findings)
    if options.json:
        print(json.dumps(_told(made, findings, proven)))
    else:
        for part in made.open:
            say(f"  not rehearsed: {part}")
    return 0 if proven else 1


def _told(made: Cut, findings: list[Finding], proven: bool) -> Mapping[str, Any]:
    return {
        "proven": proven,
        "findings": [{"name": one.name, "ok": one.ok, "detail": one.detail} for one in findings],
        "cut": made.notes,
        "not_rehearsed": made.open,
    }


def _refuse(why: str, *, as_json: bool) -> int:
    told = json.dumps({"error": "Unrehearsable", "message": why}) if as_json else f"error: {why}"
    print(told, file=sys.stderr)
    return 2


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="shunter rehearse")
    parser.add_argument("--document", type=Path, required=True)
    parser.add_argument("--narrow", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--act-s", type=float, default=600.0)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
