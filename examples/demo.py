"""The demo: one document in, a trained language model out, on this machine.

Starts `shunter up` on the data directory `.shunter/` (or uses the one that runs there), submits `tiny-lm-ddp.json`,
follows it live, and says where everything is. Ends with 0 only if the training succeeded; stops what it started.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shunter import Client, ShunterError
from shunter.display import make_display, summary
from shunter.transport import Retries
from shunter_schemas.api import Job

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "examples" / "tiny-lm-ddp.json"

STOP_WITHIN_S = 20.0
CANCEL_WITHIN_S = 45.0
LAST_LINES = 30


def main() -> int:
    """Run the demo; the exit code."""
    options = _parse()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        with _service(options.data_dir) as started:
            code = _train(options.data_dir, options.set)
    except ShunterError as error:
        print(f"error: {error} {error.hint}".rstrip(), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    if code == 0 and started:
        print("The service stopped with this demo. `shunter up` starts it again, and it still knows the job.")
    return code


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small language model with DDP on two processes, end to end.")
    parser.add_argument("--data-dir", type=Path, default=ROOT / ".shunter", help="where everything is kept")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="change the document")
    return parser.parse_args()


@contextmanager
def _service(data_dir: Path) -> Iterator[bool]:
    """A service that is ready. True: it was started here, and is stopped at the end."""
    if _is_running(data_dir):
        yield False
        return
    command = [sys.executable, "-m", "shunter", "up", "--data-dir", str(data_dir)]
    # A session of its own: Ctrl-C reaches the demo alone, which then stops the service in order.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        _wait_until_ready(process, data_dir)
        yield True
    finally:
        process.terminate()
        try:
            process.communicate(timeout=STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _is_running(data_dir: Path) -> bool:
    try:
        with Client(data_dir=data_dir, timeout_s=2, retries=Retries(tries=1)) as client:
            client.readiness()
            client.providers()  # with the key of this data directory: another service may listen there by now
            print(f"using the service that runs at {client.connection.url}")
    except ShunterError:
        return False
    return True


def _wait_until_ready(process: subprocess.Popen[str], data_dir: Path) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        if line.startswith("ready"):
            return
    raise ShunterError(f"`shunter up` ended with exit code {process.wait()}; its logs are in {data_dir / 'logs'}")


def _train(data_dir: Path, settings: list[str]) -> int:
    with Client(data_dir=data_dir) as client:
        job = _followed(client, client.submit(DOCUMENT, settings=settings).id)
        print(f"\n{summary(job)}")
        if job.state != "succeeded":
            print(f"\n{job.message or ''}\nthe last lines of its output:", file=sys.stderr)
            for line in deque(client.logs(job.id, tail=LAST_LINES), LAST_LINES):
                print(f"  [{line.rank}] {line.text}", file=sys.stderr)
            return 1
        folder = data_dir / "demo" / job.id
        files = client.download_artifacts(job.id, folder)
        url = client.connection.url
    print(f"  job        {job.id}")
    print(f"  artifacts  {folder}: {', '.join(str(file.relative_to(folder)) for file in files)}")
    print(f"  logs       shunter logs {job.id} --data-dir {data_dir}")
    print(f"  API        {url}/v1/jobs/{job.id}   (key: {data_dir / 'api-key'})")
    return 0


def _followed(client: Client, job_id: str) -> Job:
    """The job once it has ended. Ctrl-C cancels it: trainings outlive the service, and this one shall not."""
    try:
        with make_display() as display:
            return client.wait(job_id, progress=display.show, poll_s=0.5)
    except KeyboardInterrupt:
        print(f"\ncancelling {job_id}", file=sys.stderr)
        client.cancel(job_id)
        client.wait(job_id, timeout_s=CANCEL_WITHIN_S)
        raise


if __name__ == "__main__":
    sys.exit(main())
