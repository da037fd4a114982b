"""The service as an agent sees it: real HTTP, every message checked against the protocol, objects kept write-once.

`NodeService` stands in for `/v1/node/sync`, `listen` and `grants`, and for the object URLs. A test sets what is desired
and reads what came. Whatever an agent sends that the protocol does not allow is a violation, and `close` raises it.
"""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote

from pydantic import BaseModel, ValidationError
from shunter_schemas import node_sync as protocol
from support.waiting import wait_until

TOKEN = "sns_test"


class _Metrics(BaseModel):
    points: list[protocol.MetricPoint]


RECORDS: Mapping[str, type[BaseModel]] = {
    "boot": protocol.Boot,
    "prepare": protocol.Prepared,
    "rank_up": protocol.RankUp,
    "rank_exit": protocol.RankExit,
    "done": protocol.GangEnd,
    "failed": protocol.GangEnd,
    "stopped": protocol.GangEnd,
    "metrics": _Metrics,
    "progress": protocol.Progress,
    "checkpoint": protocol.CheckpointUploaded,
    "artifact": protocol.ArtifactUploaded,
    "log": protocol.LogChunk,
    "drained": protocol.Drained,
}


class NodeService:
    """One node's service, on a free port of the loopback."""

    def __init__(self) -> None:
        self.desired: dict[str, Any] = {"phase": "hold"}
        self.lease: dict[str, Any] = {}
        self.next_sync_s = 0.2
        self.upload_logs = False
        self.status_code: int | None = None
        """Answer every request with this status instead."""
        self.knows_listening = True
        self.listened: list[protocol.ListenRequest] = []
        """Every request to be told of a change, in its order."""
        self.lost_answers = 0
        """So many exchanges are taken in, and their answers never sent."""
        self.journals: dict[str, list[protocol.Record]] = {}
        self.statuses: list[protocol.NodeStatus] = []
        self.objects: dict[str, bytes] = {}
        self.violations: list[str] = []
        self.exchanges = 0
        self.refuse_puts: Callable[[str], int | None] = lambda key: None
        """A status to answer a PUT of this key with, or None to take it."""
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.back()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def back(self) -> None:
        """Listen, again on the same port."""
        self._server = _Server(("127.0.0.1", self._port), self)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def away(self) -> None:
        """Stop listening and cut the open connections."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def close(self) -> None:
        """Stop, and complain about everything that the protocol does not allow."""
        self.away()
        assert not self.violations, "\n".join(self.violations)

    @contextmanager
    def absent(self) -> Iterator[None]:
        """The service cannot be reached meanwhile."""
        self.away()
        try:
            yield
        finally:
            self.back()

    def run(self, assignment: Mapping[str, Any]) -> None:
        """Desire that this assignment runs."""
        checked = protocol.Assignment.model_validate(assignment)
        self.desired = {"phase": "run", "generation": checked.generation, "assignment": checked.model_dump(mode="json")}

    def stop(self, reason: str = "cancelled_by_user", generation: int = 1) -> None:
        self.desired = {"phase": "stop", "generation": generation, "reason": reason}

    def release(self) -> None:
        self.desired = {"phase": "release"}

    def store(self, key: str, data: bytes) -> protocol.ObjectRef:
        """Keep an object that a node may fetch; `path` is its last part."""
        self.objects[key] = data
        digest = hashlib.sha256(data).hexdigest()
        return protocol.ObjectRef(path=key.rsplit("/", 1)[-1], size=len(data), sha256=digest, object=key)

    def records(self, *types: str, generation: int | None = None) -> list[protocol.Record]:
        """The records of these types (all of them without any), oldest journal first."""
        with self._lock:
            found = [record for journal in self.journals.values() for record in journal]
        return [
            record
            for record in found
            if (not types or record.type in types) and generation in (None, record.generation)
        ]

    def data(self, type: str, generation: int | None = None) -> list[dict[str, Any]]:
        """The data of each record of this type."""
        return [record.data for record in self.records(type, generation=generation)]

    def wait_for(self, type: str, count: int = 1, *, generation: int | None = None, seconds: float = 15.0) -> Any:
        """Wait until so many records of this type have come, and return the data of the last of those."""
        wanted = f"{count} x {type}"
        try:
            wait_until(
                lambda: len(self.records(type, generation=generation)) >= count, timeout_s=seconds, description=wanted
            )
        except AssertionError as error:
            have = [(record.type, record.data) for record in self.records() if record.type != "metrics"]
            raise AssertionError(f"{error}; there are {have}") from None
        return self.data(type, generation)[count - 1]

    def log(self, rank: int, stream: str, generation: int = 1) -> bytes:
        """The bytes of a stream as its chunks give them; a gap or an overlap is a failure."""
        chunks = [chunk for chunk in self.data("log", generation) if (chunk["rank"], chunk["stream"]) == (rank, stream)]
        text = b""
        for chunk in sorted(chunks, key=lambda chunk: chunk["offset"]):
            assert chunk["offset"] == len(text), f"chunk at {chunk['offset']}, expected at {len(text)}"
            data = self.objects[chunk["object"]]
            assert len(data) == chunk["length"]
            assert data.count(b"\n") == chunk["lines"]
            text += data
        return text

    def points(self, generation: int | None = None) -> list[tuple[int, dict[str, float]]]:
        """Every metric point as (step, values)."""
        batches = self.data("metrics", generation)
        return [(point["step"], point["values"]) for batch in batches for point in batch["points"]]

    def _violated(self, what: str) -> None:
        self.violations.append(what)

    def _answer_to(self, path: str, body: bytes) -> tuple[int, dict[str, Any] | None]:
        """Status and answer; None for an answer that gets lost on its way."""
        acts = {"/v1/node/sync": self._sync, "/v1/node/grants": self._grants, "/v1/node/listen": self._listen}
        act = acts.get(path)
        if act is None or (act == self._listen and not self.knows_listening):
            return 404, {}
        try:
            answer = act(body)
        except ValidationError as error:
            self._violated(f"{path}: {error}")
            return 422, {}
        if self.lost_answers and path == "/v1/node/sync":
            self.lost_answers -= 1
            return 0, None
        return 200, answer

    def _sync(self, body: bytes) -> dict[str, Any]:
        request = protocol.SyncRequest.model_validate_json(body)
        with self._lock:
            self.exchanges += 1
            self.statuses.append(request.status)
            journal = self.journals.setdefault(request.journal_id, [])
            for record in request.records:
                self._take(journal, record)
            acknowledged = len(journal)
        desired = dict(self.desired)
        if desired.get("generation", 0) <= request.status.generation:
            desired.pop("assignment", None)
        answer = protocol.SyncAnswer.model_validate(
            {
                "acknowledged": acknowledged,
                "desired": desired,
                "lease": self.lease,
                "next_sync_s": self.next_sync_s,
                "upload_logs": self.upload_logs,
            }
        )
        return answer.model_dump(mode="json")

    def _listen(self, body: bytes) -> dict[str, Any]:
        """Held back until `desired` was decided at another time than the agent says."""
        request = protocol.ListenRequest.model_validate_json(body)
        with self._lock:
            self.listened.append(request)
        until, server = time.monotonic() + request.wait_s, self._server
        while time.monotonic() < until and self._server is server and self.desired.get("since") == request.since:
            time.sleep(0.01)
        changed = self.desired.get("since") != request.since
        return protocol.ListenAnswer(changed=changed).model_dump(mode="json")

    def _take(self, journal: list[protocol.Record], record: protocol.Record) -> None:
        if record.seq <= len(journal):
            if journal[record.seq - 1] != record:
                self._violated(f"record {record.seq} came again, changed: {journal[record.seq - 1]} then {record}")
            return
        if record.seq != len(journal) + 1:
            self._violated(f"record {record.seq} came after {len(journal)}")
            return
        shape = RECORDS.get(record.type)
        if shape is not None:
            try:
                shape.model_validate(record.data)
            except ValidationError as error:
                self._violated(f"{record.type}: {error}")
        self._check_object(record)
        journal.append(record)

    def _check_object(self, record: protocol.Record) -> None:
        """An object is there before the record that names it."""
        named = [record.data] if record.type == "log" else record.data.get("files") or []
        named = [record.data["file"]] if record.type == "artifact" else named
        for file in named:
            if file["object"] not in self.objects:
                self._violated(f"{record.type} names {file['object']}, which is not stored")

    def _grants(self, body: bytes) -> dict[str, Any]:
        request = protocol.GrantRequest.model_validate_json(body)
        for key in request.put:
            if len(key.split("/")) < 4 or not key.split("/")[1].isdigit():
                self._violated(f"a write to {key}")
        answer = protocol.GrantAnswer(
            put={key: f"/v1/objects/{quote(key)}?method=put" for key in request.put},
            get={key: f"/v1/objects/{quote(key)}?method=get" for key in request.get if key in self.objects},
        )
        return answer.model_dump(mode="json")

    def _put(self, key: str, data: bytes, sha256: str | None) -> int:
        refused = self.refuse_puts(key)
        if refused is not None:
            return refused
        if hashlib.sha256(data).hexdigest() != sha256:
            self._violated(f"{key}: the digest does not fit")
            return 422
        with self._lock:
            return 204 if self.objects.setdefault(key, data) == data else 409


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], service: NodeService) -> None:
        self.service = service
        self._open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that break are what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def _service(self) -> NodeService:
        assert isinstance(self.server, _Server)
        return self.server.service

    def do_POST(self) -> None:
        body = self._body()
        if body is None:
            return None
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer(401, {})
        if self._service.status_code is not None:
            return self._answer(self._service.status_code, {})
        status, answer = self._service._answer_to(self.path, body)
        if answer is None:
            self.close_connection = True
            return None
        return self._answer(status, answer)

    def do_PUT(self) -> None:
        key = unquote(self.path.split("?")[0].removeprefix("/v1/objects/"))
        data = self._body()
        if data is not None:
            self._answer(self._service._put(key, data, self.headers.get("X-Shunter-Sha256")), None)

    def do_GET(self) -> None:
        key = unquote(self.path.split("?")[0].removeprefix("/v1/objects/"))
        data = self._service.objects.get(key)
        if data is None:
            return self._answer(404, {})
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        return None

    def _body(self) -> bytes | None:
        """None: the other side went away before it had sent everything."""
        length = int(self.headers["Content-Length"])
        data = self.rfile.read(length)
        self.close_connection = self.close_connection or len(data) < length
        return data if len(data) == length else None

    def _answer(self, status: int, body: dict[str, Any] | None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read records, not access logs."""
