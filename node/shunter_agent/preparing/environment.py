"""The Python environment of a job: the node's own, or a virtual environment over it with what the document adds."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Sequence

from shunter_agent.files import digest, remove_tree
from shunter_agent.preparing.shell import SetupFailed, Shell

_PACKAGES = (
    "import json, sys; print(json.dumps([p for p in sys.path if p.endswith(('site-packages', 'dist-packages'))]))"
)
_WHERE = "import json, sysconfig; print(json.dumps(sysconfig.get_path('purelib')))"


def fingerprint(requirements: Sequence[str], file: str | None, python: str) -> dict[str, Any]:
    """What the virtual environment depends on; the same fingerprint means it can stay.

    Raises:
        SetupFailed: there is no such requirements file.
    """
    if file is not None and not os.path.isfile(file):
        raise SetupFailed(f"there is no requirements file {file}")
    return {"python": python, "requirements": list(requirements), "file": digest(file) if file else None}


def make_venv(python: str, folder: str, environment: dict[str, str]) -> str:
    """A virtual environment that sees every package of `python`, and its interpreter's path.

    `--system-site-packages` alone shows the packages of the *base* interpreter: where `python` is itself of a virtual
    environment (as under `shunter up`), torch would be missing. So its package folders are added by a `.pth` file; pip
    comes from there too, which makes the environment in a tenth of the time.

    Raises:
        SetupFailed: Python's venv module is missing or fails.
    """
    remove_tree(folder)
    made = subprocess.run(
        (python, "-m", "venv", "--system-site-packages", "--without-pip", folder),
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    if made.returncode != 0:
        raise SetupFailed(f"the virtual environment cannot be made: {made.stderr.decode('utf-8', 'replace').strip()}")
    inner = os.path.join(folder, "bin", "python")
    packages = _ask(python, _PACKAGES, environment)
    lines = [f"import site; site.addsitedir({path!r})" for path in packages]
    with open(
        os.path.join(_ask(inner, _WHERE, environment), "shunter_node_packages.pth"), "w", encoding="utf-8"
    ) as file:
        file.write("\n".join(lines) + "\n")
    return inner


def install(
    shell: Shell, python: str, requirements: Sequence[str], file: str | None, environment: dict[str, str]
) -> None:
    """Have pip install the requirements, and those of the requirements file.

    Raises:
        SetupFailed: pip failed; its last lines are in the message.
    """
    wanted = [*requirements, *(("-r", file) if file else ())]
    argv = (python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *wanted)
    folder = os.path.dirname(file) if file else os.path.dirname(python)
    shell.run(argv, folder, environment, f"pip install {' '.join(wanted)}")


def _ask(python: str, program: str, environment: dict[str, str]) -> Any:
    answer = subprocess.run((python, "-c", program), env=environment, stdin=subprocess.DEVNULL, capture_output=True)
    if answer.returncode != 0:
        raise SetupFailed(f"{python}: {answer.stderr.decode('utf-8', 'replace').strip()}")
    return json.loads(answer.stdout)
