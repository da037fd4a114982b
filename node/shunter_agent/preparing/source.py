"""The user's code: an uploaded bundle is unpacked, a git repository is cloned at one commit."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Any

from shunter_agent.exchange.objects import Objects, Ref
from shunter_agent.files import remove_tree
from shunter_agent.preparing.bundle import BadBundle, unpack
from shunter_agent.preparing.shell import SetupFailed, Shell

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def fetch_bundle(objects: Objects, ref: Ref, target: str) -> None:
    """Fetch an archive and unpack it so that `target` holds exactly its content.

    Raises:
        SetupFailed: the archive is refused.
    """
    archive = target + ".tar.gz"
    objects.get(ref, archive)
    try:
        unpack(archive, target)
    except BadBundle as error:
        raise SetupFailed(f"the archive is refused: {error}") from error
    finally:
        os.unlink(archive)


def clone(shell: Shell, source: dict[str, Any], commit: str | None, target: str, environment: dict[str, str]) -> str:
    """Check the repository out at `commit`, or at the document's ref, and return the commit.

    Only the one commit is fetched; where a server does not serve single commits, everything is.

    Raises:
        SetupFailed: git says no; its last lines are in the message.
    """
    environment = {**environment, "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file"}
    wanted = commit or source.get("ref") or "HEAD"
    partial = target + ".cloning"
    remove_tree(partial)
    os.makedirs(partial)
    shell.run(("git", "init", "--quiet"), partial, environment)
    shell.run(("git", "remote", "add", "--", "origin", source["url"]), partial, environment)
    try:
        shell.run(("git", "fetch", "--quiet", "--depth", "1", "origin", wanted), partial, environment)
        shell.run(("git", "checkout", "--quiet", "--detach", "FETCH_HEAD"), partial, environment)
    except SetupFailed:
        shell.say("fetching everything instead")
        refs = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
        shell.run(("git", "fetch", "--quiet", "origin", *refs), partial, environment)
        shell.run(("git", "checkout", "--quiet", "--detach", wanted, "--"), partial, environment)
    if os.path.exists(os.path.join(partial, ".gitmodules")):
        update = ("git", "submodule", "update", "--quiet", "--init", "--recursive", "--depth", "1")
        shell.run(update, partial, environment)
    found = _head(partial, environment)
    if commit and found != commit:
        raise SetupFailed(f"the repository gave commit {found} where {commit} was asked for")
    remove_tree(target)
    os.replace(partial, target)
    return found


def _head(folder: str, environment: dict[str, str]) -> str:
    answer = subprocess.run(
        ("git", "rev-parse", "HEAD"), cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True
    )
    commit = answer.stdout.decode("ascii", "replace").strip()
    if not _COMMIT.fullmatch(commit):
        raise SetupFailed(f"git rev-parse: {answer.stderr.decode('utf-8', 'replace').strip()}")
    return commit
