"""`python -m shunter_service.openapi [--check]`: the API's description, `openapi.json` in the repository's root.

Litestar describes the routes; the models are described by pydantic itself, because Litestar's description of them is
lossy and in places invalid. What neither can know (bodies that are read by hand, other content types, problems, links)
stands in the tables below.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from litestar import Litestar
from litestar.openapi import OpenAPIConfig
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from shunter_schemas import api
from shunter_schemas.job import JobSpec

from shunter_service.app import create_app
from shunter_service.examples import example_of, job_document
from shunter_service.streams.topics import KINDS
from shunter_service.web.bodies import ARCHIVES, JSON, PATCHES
from shunter_service.web.parameter_names import parameter_definitions

FILE: Final = Path(__file__).parents[2] / "openapi.json"

_REF: Final = "#/components/schemas/{model}"
_PROBLEM: Final = {"$ref": "#/components/schemas/Problem"}
_BYTES: Final = {"schema": {"type": "string", "contentEncoding": "binary"}}
_TEXT: Final = {"schema": {"type": "string"}}
_BOUNDS: Final = (
    ("minimum", "ge"),
    ("maximum", "le"),
    ("minLength", "min_length"),
    ("maxLength", "max_length"),
    ("maxItems", "max_items"),
    ("pattern", "pattern"),
)
"""Words of JSON Schema and of Litestar's parameters."""
_METHODS: Final = ("get", "head", "post", "put", "patch", "delete")


_PUBLIC_KEY: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIH6b3r9hD0n3m0m8o7sYl0u4bq3mI3u7y3o2N1q9xYzA"


def _body(model: str, kinds: Sequence[str], example: Any, *, required: bool = True) -> dict[str, Any]:
    media = {"schema": {"$ref": _REF.format(model=model)}, "example": example}
    return {"required": required, "content": dict.fromkeys(kinds, media)}


_BODIES: Final[Mapping[str, dict[str, Any]]] = {
    "CreateJob": _body("JobSpec", JSON, job_document()),
    "CreatePlan": _body("JobSpec", JSON, job_document()),
    "CreateBundle": {"required": True, "content": dict.fromkeys(ARCHIVES, _BYTES)},
    "UpdateJob": _body("JobPatch", PATCHES, {"labels": {"team": "nlp"}, "limits": {"max_duration_s": 7200}}),
    "RetryJob": _body("RetryRequest", JSON, {"from": "checkpoint"}, required=False),
    "MoveJob": _body("MoveRequest", JSON, {"strategy": {"kind": "fsdp"}, "resources": {"gpus": 4}}),
    "HoldReaping": _body("HoldRequest", JSON, {"reason": "restored from last night's dump"}),
    "OpenShell": _body("ShellRequest", JSON, {"public_key": _PUBLIC_KEY, "rank": 3, "duration_s": 600}),
    "CancelJobs": _body("CancelRequest", JSON, {"label": ["sweep=42"], "state": ["queued", "running"]}),
}
_CONTENT: Final[Mapping[str, Mapping[str, Any]]] = {
    "ListEvents": {"text/event-stream": _TEXT},
    "GetLogs": {"text/event-stream": _TEXT, "text/plain": _TEXT},
    "GetProblemKind": {"text/html": _TEXT},
    "GetReasonKind": {"text/html": _TEXT},
    "GetCosts": {"text/csv": _TEXT},
}
"""Further content types of a successful answer."""
_ONLY_CONTENT: Final[Mapping[str, Mapping[str, Any]]] = {
    "DownloadArtifact": {"application/octet-stream": _BYTES},
    "GetJobSchema": {"application/schema+json": {"schema": {"type": "object"}}},
    "GetHealth": {"text/plain": _TEXT},
}
_ALSO: Final[Mapping[str, Mapping[str, str]]] = {
    "GetJob": {"304": "The client holds the current answer."},
    "DownloadArtifact": {"206": "The part that was asked for.", "304": "The client holds the file."},
    "GetLogs": {"206": "The part that was asked for."},
    "GetReadiness": {"503": "A required part does not work."},
    "CreateBundle": {"200": "The archive was known before."},
}
_REFUSALS: Final[Mapping[str, Sequence[int]]] = {
    "CreateJob": (400, 401, 403, 413, 415, 422, 503),
    "CreatePlan": (400, 401, 413, 415, 422, 503),
    "CreateBundle": (400, 401, 403, 413, 415, 422, 503),
    **dict.fromkeys(("CancelJob", "PauseJob", "ResumeJob", "CheckpointJob"), (401, 403, 404, 409, 422, 503)),
    "RetryJob": (400, 401, 403, 404, 409, 413, 415, 422, 503),
    "MoveJob": (400, 401, 403, 404, 409, 412, 413, 415, 422, 503),
    **dict.fromkeys(("ListNodes", "GetCosts"), (401, 422, 503)),
    **dict.fromkeys(("GetReaping", "ConfirmReaping"), (401, 403, 422, 503)),
    "HoldReaping": (400, 401, 403, 413, 415, 422, 503),
    "CancelJobs": (400, 401, 403, 413, 415, 422, 503),
    "OpenShell": (400, 401, 403, 404, 409, 413, 415, 422, 503),
    "PeekAtNodes": (401, 403, 404, 422, 503),
    "UpdateJob": (400, 401, 403, 404, 409, 412, 413, 415, 422, 428, 503),
    "DeleteJob": (401, 403, 404, 409, 422, 503),
    "CountJobs": (401, 422, 503),
    "DownloadArtifact": (401, 404, 416, 422, 503),
    "GetLogs": (401, 404, 416, 422, 503),
    "Stream": (400, 401, 422, 503),
    "GetHealth": (422,),
    "GetReadiness": (422,),
    "GetJobSchema": (422,),
    **dict.fromkeys(("GetProblemKind", "GetReasonKind"), (404, 422)),
}
_WHY: Final[Mapping[int, str]] = {
    400: "The body, or the place in a stream, cannot be read.",
    401: "No valid key was sent.",
    403: "The key does not allow this.",
    404: "There is no such thing, or it is another project's.",
    409: "The present state does not allow this.",
    412: "The job has another revision by now.",
    413: "The body is too large.",
    415: "The body has another content type.",
    416: "The range lies outside of the file.",
    422: "What was sent is not valid; `errors` says where.",
    428: "`If-Match` is missing.",
    503: "The service cannot serve at the moment; try again.",
}
_USUAL_REFUSALS: Final = (401, 404, 422, 503)
_OF_A_JOB: Final = (
    *("GetJob", "UpdateJob", "CancelJob", "PauseJob", "ResumeJob", "CheckpointJob", "RetryJob", "DeleteJob"),
    *("MoveJob", "ListDocuments", "ListEvents", "GetLogs", "GetMetrics", "ListArtifacts", "ListCheckpoints"),
    *("OpenShell", "PeekAtNodes", "DebugJob"),
)
_LINKS: Final[Mapping[str, Mapping[str, Mapping[str, str]]]] = {
    "CreateJob": {
        **{name: {"job_id": "$response.body#/id"} for name in _OF_A_JOB},
        "Stream": {"topics": ",".join(("jobs", *(f"job:{{$response.body#/id}}:{kind}" for kind in KINDS)))},
    },
    "ListJobs": {name: {"job_id": "$response.body#/items/0/id"} for name in _OF_A_JOB},
    "RetryJob": {name: {"job_id": "$response.body#/id"} for name in _OF_A_JOB},
    "CreateBundle": {name: {"bundle_id": "$response.body#/id"} for name in ("GetBundle", "HasBundle")},
    "ListArtifacts": {
        "DownloadArtifact": {"job_id": "$request.path.job_id", "artifact_path": "$response.body#/items/0/path"}
    },
}
"""From an answer to what can be asked next: parameters by operation."""
_EXAMPLES: Final[Mapping[str, Any]] = {"topics": "jobs,job:job_01kb9m4t8zq3v5x7y9a1c3e5g7:events"}
"""Of parameters whose form no schema says."""
_REQUIRED: Final = frozenset({"topics"})
"""Parameters that a handler misses by itself, to say more than that."""
_ETAG: Final = {"ETag": {"description": "Names this state of the answer.", "schema": {"type": "string"}}}
_LOCATION: Final = {"Location": {"description": "Where it is.", "schema": {"type": "string"}}}
_REPLAYED: Final = {
    "Idempotent-Replayed": {
        "description": "`true`: an earlier request with this Idempotency-Key did it, and this was its answer.",
        "schema": {"const": "true"},
    }
}
_HEADERS: Final[Mapping[str, Mapping[str, Any]]] = {
    **{name: {**_LOCATION, **_ETAG, **_REPLAYED} for name in ("CreateJob", "RetryJob")},
    **{name: {**_ETAG, **_REPLAYED} for name in ("CancelJob", "PauseJob", "ResumeJob", "CheckpointJob", "MoveJob")},
    **dict.fromkeys(("CancelJobs", "ConfirmReaping", "HoldReaping"), _REPLAYED),
    **dict.fromkeys(("GetJob", "UpdateJob"), _ETAG),
    "DownloadArtifact": _ETAG,
    "CreateBundle": _LOCATION,
}


def document() -> dict[str, Any]:
    """The description as plain JSON values."""
    config = OpenAPIConfig(
        title="Shunter",
        version=version("shunter"),
        description="Declarative multi-GPU training: one document in, a trained model out.",
        use_handler_docstrings=True,
    )
    app = create_app(None, openapi=config)
    described: dict[str, Any] = app.openapi_schema.to_schema()
    bounds = _bounds(app)
    described["security"] = [{"key": []}]
    described["components"] = {
        "schemas": _schemas(),
        "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "A key: `shk_…`."}},
    }
    for operation in _operations(described):
        _complete(operation, bounds[operation["operationId"]])
    return described


def text() -> str:
    """What the file holds."""
    return json.dumps(document(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the file, or with `--check` only say whether it is stale (exit code 1)."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m shunter_service.openapi [--check]", file=sys.stderr)
        return 2
    current = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    if current == text():
        return 0
    if arguments:
        print("openapi.json is stale: run python -m shunter_service.openapi", file=sys.stderr)
        return 1
    FILE.write_text(text(), encoding="utf-8")
    print(f"wrote {FILE}")
    return 0


def _models() -> list[type[BaseModel]]:
    named = (getattr(api, name) for name in api.__all__)
    return [JobSpec, *(model for model in named if isinstance(model, type) and issubclass(model, BaseModel))]


def _schemas() -> dict[str, Any]:
    """Every model in validation mode: what may be left out of an answer is not required there.

    A default that is an object moves to `x-default`: generators of clients give up on a whole model for one.
    """
    models = [model for model in _models() if model is not api.Answer]
    _, definitions = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
    schemas: dict[str, Any] = definitions["$defs"]
    for place in _objects_in(schemas):
        if isinstance(place.get("default"), dict):
            place["x-default"] = place.pop("default")
    return schemas


def _objects_in(value: Any) -> Iterator[dict[str, Any]]:
    """Every JSON object within a value."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects_in(inner)


def _operations(described: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for path in described["paths"].values():
        for method in _METHODS:
            if method in path:
                yield path[method]


def _bounds(app: Litestar) -> dict[str, dict[str, dict[str, Any]]]:
    """What the routes check about their parameters, by operation and name; Litestar's description loses some of it."""
    handlers = [handler for route in app.routes for handler in getattr(route, "route_handlers", ())]
    return {
        handler.operation_id: {
            name: {word: value for word, attribute in _BOUNDS if (value := getattr(definition, attribute)) is not None}
            for name, definition in parameter_definitions(handler).items()
        }
        for handler in handlers
        if getattr(handler, "operation_id", None)
    }


def _complete(operation: dict[str, Any], bounds: Mapping[str, Mapping[str, Any]]) -> None:
    name = operation["operationId"]
    operation.pop("deprecated", None)
    operation["summary"] = operation["description"].partition(". ")[0].rstrip(".")
    operation["parameters"] = [
        _parameter(parameter, bounds.get(parameter["name"], {})) for parameter in operation.get("parameters", ())
    ]
    if name in _BODIES:
        operation["requestBody"] = _BODIES[name]
    if name in _PUBLIC:
        operation["security"] = []
    responses = {status: response for status, response in operation["responses"].items() if not status.startswith("4")}
    for response in responses.values():
        _shape_success(name, response)
    success = next(iter(responses.values()))
    for status, description in _ALSO.get(name, {}).items():
        content = {} if status == "304" else {"content": success["content"]}
        responses[status] = {"description": description, **content}
    for code in _REFUSALS.get(name, _USUAL_REFUSALS):
        responses.setdefault(str(code), _refusal(code))
    responses["default"] = {"description": "A problem.", "content": {"application/problem+json": {"schema": _PROBLEM}}}
    operation["responses"] = responses


def _shape_success(name: str, response: dict[str, Any]) -> None:
    response["description"] = response["description"] if name == "HasBundle" else "Done."
    response["headers"] = dict(_HEADERS.get(name, {})) | {
        "X-Request-Id": {"description": "Names the request in the service's logs.", "schema": {"type": "string"}}
    }
    if name in _ONLY_CONTENT:
        response["content"] = dict(_ONLY_CONTENT[name])
    elif "content" in response:
        for media in response["content"].values():
            model = str(media["schema"].get("$ref", "")).rpartition("/")[2]
            if model:
                media["example"] = example_of(getattr(api, model))
        response["content"] |= _CONTENT.get(name, {})
    if name in _LINKS:
        response["links"] = {
            target: {"operationId": target, "parameters": dict(parameters)}
            for target, parameters in _LINKS[name].items()
        }


def _refusal(status: int) -> dict[str, Any]:
    return {"description": _WHY[status], "content": {"application/problem+json": {"schema": _PROBLEM}}}


def _parameter(parameter: dict[str, Any], bounds: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter that may be left out is optional, not null."""
    schema = dict(parameter["schema"])
    branches = [branch for branch in schema.pop("oneOf", ()) if branch.get("type") != "null"]
    if len(branches) == 1:
        schema = {**branches[0], **schema}
    schema.pop("description", None)
    if schema.get("default", ...) is None:
        del schema["default"]
    if "enum" in schema:
        schema |= {"enum": [value for value in schema["enum"] if value is not None], "type": "string"}
    schema |= bounds
    required = parameter["required"] or parameter["name"] in _REQUIRED
    if required:
        schema.pop("default", None)
    kept = {"name": parameter["name"], "in": parameter["in"], "schema": schema, "required": required}
    if "description" in parameter:
        kept["description"] = parameter["description"]
    if parameter["name"] in _EXAMPLES:
        kept["example"] = _EXAMPLES[parameter["name"]]
    return kept


_PUBLIC: Final = frozenset({"GetHealth", "GetReadiness", "GetJobSchema", "GetProblemKind", "GetReasonKind"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
