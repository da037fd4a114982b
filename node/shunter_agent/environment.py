"""The Python environment of a job: the node's own, or a virtual environment over it with what the document adds."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from shunter_agent.files import digest, remove_tree
from shunter_agent.shell import SetupFailed, Shell

_PACKAGES = (
    "import json, sys; print(json.dumps([p for p in sys.path if p.endswith(('site-packages', 'dist-packages'))]))"
)
_WHERE = "import json, sysconfig; print(json.dumps(sysconfig.get_path('purelib')))"


def fingerprint(document: dict[str, Any], source: str, python: str) -> dict[str, Any]:
    """What the virtual environment depends on; the same fingerprint means it can stay."""
    environment = document.get("environment") or {}
    file = environment.get("requirements_file")
    path = os.path.join(source, file) if file else ""
    if path and not os.path.isfile(path):
        raise SetupFailed(f"the source holds no {file}")
    return {
        "python": python,
        "requirements": list(environment.get("requirements") or []),
        "file": digest(path) if path else None,
    }


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


def install(shell: Shell, python: str, document: dict[str, Any], source: str, environment: dict[str, str]) -> None:
    """Have pip install the document's requirements and those of its requirements file.

    Raises:
        SetupFailed: pip failed; its last lines are in the message.
    """
    wanted = document.get("environment") or {}
    arguments: list[str] = ["--disable-pip-version-check", "--no-input", *(wanted.get("requirements") or [])]
    if wanted.get("requirements_file"):
        arguments += ["-r", wanted["requirements_file"]]
    shell.run(
        (python, "-m", "pip", "install", *arguments), source, environment, f"pip install {' '.join(arguments[2:])}"
    )


def _ask(python: str, program: str, environment: dict[str, str]) -> Any:
    answer = subprocess.run((python, "-c", program), env=environment, stdin=subprocess.DEVNULL, capture_output=True)
    if answer.returncode != 0:
        raise SetupFailed(f"{python}: {answer.stderr.decode('utf-8', 'replace').strip()}")
    return json.loads(answer.stdout)
