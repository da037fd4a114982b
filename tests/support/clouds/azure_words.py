"""What the fake of Azure says when it says no, and how it reads what it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError
from shunter_providers.testing import CloudFault, Refusal, Reply, Request

_Body = TypeVar("_Body", bound=BaseModel)

TENANT: Final = "72f988bf-86f1-41af-91ab-2d7cd011db47"
CLIENT: Final = "5f3c9a9e-0d6a-4d52-8a7e-3f7a0a3f6f11"
SUBSCRIPTION: Final = "0b1f6471-1bf0-4dda-aec3-cb9272f09590"
TOO_MANY: Final = "The server rejected the request because too many requests have been received for this subscription."
ANSWERS: Final[Mapping[CloudFault, tuple[int, str, str]]] = {
    CloudFault.AUTH: (401, "InvalidAuthenticationToken", "The access token is invalid."),
    CloudFault.PAYMENT: (
        409,
        "ReadOnlyDisabledSubscription",
        f"The subscription '{SUBSCRIPTION}' is disabled and therefore marked as read only. You cannot perform any "
        "write actions on this subscription until it is re-enabled.",
    ),
    CloudFault.NO_CAPACITY: (
        409,
        "SkuNotAvailable",
        "The requested VM size for resource 'Following SKUs have failed for Capacity Restrictions: Standard_D4s_v5' is "
        "currently not available in location 'eastus'. Please try another size or deploy to a different location or "
        "different zone. See https://aka.ms/azureskunotavailable for details.",
    ),
    CloudFault.QUOTA: (
        409,
        "OperationNotAllowed",
        "Operation could not be completed as it results in exceeding approved standardNCadsH100v5Family Cores quota. "
        "Additional details - Deployment Model: Resource Manager, Location: eastus, Current Limit: 0, Current Usage: "
        "0, Additional Required: 40, (Minimum) New Limit Required: 40.",
    ),
    CloudFault.RATE_LIMITED: (429, "OperationNotAllowed", TOO_MANY),
    CloudFault.RATE_LIMITED_SILENT: (429, "TooManyRequests", TOO_MANY),
    CloudFault.SERVER_ERROR: (500, "InternalServerError", "The server encountered an internal error. Please retry."),
}
ROOT: Final = f"/subscriptions/{SUBSCRIPTION}"


def read(request: Request, model: type[_Body]) -> _Body:
    """A body; refused where it has a field that is not known, or one that is wrong."""
    try:
        return model.model_validate_json(request.body)
    except ValidationError as exc:
        first = exc.errors()[0]
        where = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            told = f"Could not find member '{first['loc'][-1]}' on object of type 'ResourceDefinition'. Path '{where}'."
            raise refused(400, "InvalidRequestContent", told) from None
        raise refused(400, "InvalidParameter", f"{where}: {first['msg']}") from None


def not_signed_in() -> Reply:
    """A secret that is not taken."""
    told = f"AADSTS7000215: Invalid client secret provided. Ensure the secret being sent is for the app '{CLIENT}'."
    return Reply(401, {"error": "invalid_client", "error_description": told, "error_codes": [7000215]})


def error(status: int, code: str, message: str) -> Reply:
    """As every API of the Resource Manager has it."""
    return Reply(status, {"error": {"code": code, "message": message}})


def refused(status: int, code: str, message: str) -> Refusal:
    """To raise."""
    return Refusal(*error(status, code, message))
