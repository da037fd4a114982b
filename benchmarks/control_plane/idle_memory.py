"""How long `shunter up` takes to be ready, and what its processes hold at rest.

Prints one line per process: resident set (RSS) and proportional set (PSS: shared pages counted by share), in MB.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from running import service

_MB = 1e6


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the tree below `shunter up`."""

    pid: int
    parent: int
    name: str
    rss_mb: float
    pss_mb: float


def main() -> None:
    """Start twice on one data directory (cold, then warm) and read the second one's memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rest-s", type=float, default=10.0, help="how long to let it rest before reading")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shunter-bench-") as folder:
        data_dir = Path(folder)
        with service(data_dir) as running:
            print(f"ready, new data directory   {running.ready_after_s:6.2f} s")
        with service(data_dir) as running:
            print(f"ready, known data directory {running.ready_after_s:6.2f} s")
            time.sleep(options.rest_s)
            report(running.pid)


def report(root: int) -> None:
    """Print the tree below `root`, and the sum of PSS by the role's top process."""
    tree = descendants(root)
    print(f"{'pid':>8} {'parent':>8} {'RSS MB':>8} {'PSS MB':>8}  command")
    for process in tree:
        line = f"{process.pid:>8} {process.parent:>8} {process.rss_mb:8.1f} {process.pss_mb:8.1f}"
        print(f"{line}  {process.name}")
    workers = [process for process in tree if "shunter_workers" in process.name]
    print(f"worker group: {len(workers)} processes, PSS {sum(process.pss_mb for process in workers):.1f} MB")


def descendants(root: int) -> list[Process]:
    """`root` and every process below it, parents first."""
    known = {process.pid: process for process in map(_read, _pids()) if process}
    found = [known[root]]
    for process in found:
        found += [child for child in known.values() if child.parent == process.pid]
    return found


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _read(pid: int) -> Process | None:
    folder = Path("/proc") / str(pid)
    try:
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        sizes = dict(line.split(":", 1) for line in (folder / "smaps_rollup").read_text().splitlines()[1:])
    except (OSError, ValueError):
        return None
    rss_mb, pss_mb = (int(sizes[key].split()[0]) * 1024 / _MB for key in ("Rss", "Pss"))
    return Process(pid, parent, command[:110], rss_mb, pss_mb)


if __name__ == "__main__":
    main()
