"""The description of the API: current, valid, complete, and true of what the API answers."""

import inspect
import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from litestar.routes import HTTPRoute
from openapi_spec_validator import validate
from shunter_schemas.api import Job
from shunter_schemas.parse import parse_posted_job
from shunter_schemas.states import Reason
from shunter_service import openapi
from shunter_service.app import create_app
from shunter_service.examples import example_of
from support.service_app import App

_READERS = {"json_body", "optional_json", "require_type"}
METHODS = ("get", "head", "post", "put", "patch", "delete")


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    return openapi.document()


def operations(described: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        path[method]["operationId"]: path[method]
        for path in described["paths"].values()
        for method in METHODS
        if method in path
    }


def conforms(described: dict[str, Any], model: str, body: Any) -> bool:
    """Whether a body is what the named schema says."""
    schema = {"$ref": f"#/components/schemas/{model}", "components": described["components"]}
    faults = [fault.message for fault in Draft202012Validator(schema).iter_errors(body)]
    assert faults == []
    return True


def test_the_committed_file_is_what_the_code_says() -> None:
    assert openapi.FILE.read_text(encoding="utf-8") == openapi.text(), "run python -m shunter_service.openapi"


def test_schemas_are_named_by_their_models_alone(described: dict[str, Any]) -> None:
    # Two public models of one name would both be called by their modules, in every generated client.
    assert [name for name in described["components"]["schemas"] if "__" in name] == []


def test_it_is_a_valid_openapi_document(described: dict[str, Any]) -> None:
    validate(described)

    assert described["openapi"].startswith("3.1")


def test_every_operation_says_what_it_does_and_how_it_fails(described: dict[str, Any]) -> None:
    for name, operation in operations(described).items():
        assert name[0].isupper()
        assert operation["description"]
        assert operation["summary"]
        assert operation["tags"]
        problem = operation["responses"]["default"]["content"]["application/problem+json"]["schema"]
        assert problem == {"$ref": "#/components/schemas/Problem"}


def test_every_operation_that_reads_a_body_describes_it(described: dict[str, Any]) -> None:
    routes = [route for route in create_app(None).routes if isinstance(route, HTTPRoute)]
    handlers = {handler.operation_id: handler for route in routes for handler in route.route_handlers}
    known = operations(described)
    reading = {name for name, handler in handlers.items() if name in known and _reads_a_body(handler.fn)}

    assert "OpenShell" in reading
    assert reading == {name for name, operation in known.items() if "requestBody" in operation}


def _reads_a_body(function: Any) -> bool:
    return bool(_READERS & set(inspect.unwrap(function).__code__.co_names))


def test_every_parameter_is_described(described: dict[str, Any]) -> None:
    undescribed = [
        (name, parameter["name"])
        for name, operation in operations(described).items()
        for parameter in operation["parameters"]
        if parameter["in"] != "path" and not parameter.get("description")
    ]

    assert undescribed == []


def test_every_json_answer_has_a_named_schema_and_a_true_example(described: dict[str, Any]) -> None:
    answers = [
        media
        for operation in operations(described).values()
        for status, response in operation["responses"].items()
        for kind, media in response.get("content", {}).items()
        if kind == "application/json" and status.startswith("2")
    ]

    assert len(answers) >= 10
    for media in answers:
        model = media["schema"]["$ref"].rpartition("/")[2]
        assert conforms(described, model, media["example"])


def test_the_example_document_is_one_that_the_api_takes(described: dict[str, Any]) -> None:
    body = operations(described)["CreateJob"]["requestBody"]["content"]["application/json"]

    parse_posted_job(json.dumps(body["example"]).encode())
    assert conforms(described, "JobSpec", body["example"])


def test_what_needs_no_key_says_so(described: dict[str, Any]) -> None:
    public = {name for name, operation in operations(described).items() if operation.get("security") == []}

    assert public == {"GetHealth", "GetReadiness", "GetJobSchema", "GetProblemKind", "GetReasonKind"}
    assert described["security"] == [{"key": []}]


def test_the_nodes_side_is_not_in_the_public_document(described: dict[str, Any]) -> None:
    assert not [path for path in described["paths"] if path.startswith(("/v1/node/", "/v1/objects"))]


def test_unknown_members_of_a_job_document_are_refused_by_the_schema_too(described: dict[str, Any]) -> None:
    assert described["components"]["schemas"]["JobSpec"]["additionalProperties"] is False


def test_an_example_fills_every_field() -> None:
    assert set(example_of(Job)) == set(Job.model_fields)


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/v1/jobs", "JobPage"),
        ("/v1/jobs/{id}", "Job"),
        ("/v1/jobs/{id}/events", "EventPage"),
        ("/v1/jobs/{id}/logs", "LogPage"),
        ("/v1/jobs/{id}/metrics", "MetricsAnswer"),
        ("/v1/jobs/{id}/artifacts", "ArtifactPage"),
        ("/v1/jobs/{id}/checkpoints", "CheckpointPage"),
        ("/v1/providers", "ProviderPage"),
        ("/v1/me", "Me"),
        ("/readyz", "Readiness"),
        ("/nope", "Problem"),
        ("/v1/jobs?limit=0", "Problem"),
    ],
)
async def test_answers_are_what_the_document_says(lite: App, described: dict[str, Any], path: str, model: str) -> None:
    job = await lite.submit()
    part = lite.worker_part(job["id"])
    part.run()
    part.report(3, 10, loss=1.5)
    part.print("hello\n")
    part.leave("model.bin", b"abc")
    part.end(Reason.DONE)

    answer = await lite.http.get(path.replace("{id}", job["id"]))

    assert conforms(described, model, answer.json())
