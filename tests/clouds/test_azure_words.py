"""Azure's words to ours, by themselves: refusals of every kind as its APIs write them, and states of machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from shunter_providers.cloud_kit.faults import Refused, classify
from shunter_providers.cloud_kit.reading import Fields
from shunter_providers.clouds.azure.arm import FAULTS, words_of
from shunter_providers.clouds.azure.nodes import view_of
from shunter_providers.clouds.azure.settings import AzureSettings
from shunter_providers.contract import Fault, NodeCondition, Scope
from support.clouds.azure_words import CLIENT, ROOT, SUBSCRIPTION, TENANT

SETTINGS = AzureSettings.model_validate(
    {"tenant_id": TENANT, "client_id": CLIENT, "client_secret": "a-secret", "subscription_id": SUBSCRIPTION}
)


@pytest.mark.parametrize(
    ("status", "code", "message", "fault", "scope"),
    [
        (401, "ExpiredAuthenticationToken", "The access token expiry UTC time is earlier.", Fault.AUTH, Scope.ACCOUNT),
        (403, "AuthorizationFailed", "The client 'x' does not have authorization.", Fault.AUTH, Scope.ACCOUNT),
        (403, "LinkedAuthorizationFailed", "The client has no permission on subnet.", Fault.AUTH, Scope.ACCOUNT),
        (404, "SubscriptionNotFound", "The subscription 'x' could not be found.", Fault.AUTH, Scope.ACCOUNT),
        (409, "SubscriptionNotRegistered", "is not registered to use 'Microsoft.Compute'", Fault.AUTH, Scope.ACCOUNT),
        (409, "MissingSubscriptionRegistration", "is not registered to use namespace", Fault.AUTH, Scope.ACCOUNT),
        (409, "ReadOnlyDisabledSubscription", "The subscription 'x' is disabled", Fault.PAYMENT, Scope.ACCOUNT),
        (403, "RequestDisallowedByPolicy", "Resource 'n' was disallowed by policy.", Fault.QUOTA, Scope.OFFER),
        (409, "OperationNotAllowed", "exceeding approved Total Regional Cores quota.", Fault.QUOTA, Scope.REGION),
        (409, "OperationNotAllowed", "exceeding approved standardNDSH100v5Family Cores", Fault.QUOTA, Scope.OFFER),
        (409, "OperationNotAllowed", "since the VM is marked for deletion.", Fault.TRANSIENT, Scope.OFFER),
        (429, "OperationNotAllowed", "too many requests, quota of them is used up", Fault.RATE_LIMITED, Scope.ACCOUNT),
        (503, "ServerBusy", "TooManyRequests", Fault.RATE_LIMITED, Scope.ACCOUNT),
        (409, "SkuNotAvailable", "is currently not available in location 'eastus'", Fault.NO_CAPACITY, Scope.OFFER),
        (409, "OverconstrainedAllocationRequest", "Allocation failed.", Fault.NO_CAPACITY, Scope.OFFER),
        (409, "OverconstrainedZonalAllocationRequest", "Allocation failed.", Fault.NO_CAPACITY, Scope.OFFER),
        (409, "SpotPriceGreaterThanProvidedMaxPrice", "Unable to perform", Fault.NO_CAPACITY, Scope.OFFER),
        (409, "OperationNotAllowed", "exceeding approved LowPriorityCores quota.", Fault.QUOTA, Scope.OFFER),
        (400, "PublicIPCountLimitReached", "Cannot create more than 100 addresses", Fault.QUOTA, Scope.REGION),
        (409, "AzureSpotIsNotSupportedForThisVMSize", "not supported", Fault.NO_CAPACITY, Scope.OFFER),
        (429, "RetryableError", "A retryable error occurred.", Fault.RATE_LIMITED, Scope.ACCOUNT),
        (409, "AnotherOperationInProgress", "Another operation is in progress.", Fault.TRANSIENT, Scope.OFFER),
        (400, "NicReservedForAnotherVm", "Nic(s) in request is reserved.", Fault.TRANSIENT, Scope.OFFER),
        (400, "PublicIPAddressCannotBeDeleted", "can not be deleted", Fault.TRANSIENT, Scope.OFFER),
        (409, "OperationNotAllowed", "Disk x is attached to VM y.", Fault.TRANSIENT, Scope.OFFER),
        (412, "PreconditionFailed", "The precondition is not met.", Fault.CONFLICT, Scope.OFFER),
        (409, "PropertyChangeNotAllowed", "Changing property 'x' is not allowed.", Fault.CONFLICT, Scope.OFFER),
        (404, "PlatformImageNotFound", "The platform image is not available.", Fault.INVALID, Scope.OFFER),
        (400, "InvalidParameter", "The value provided is not valid.", Fault.INVALID, Scope.OFFER),
        (500, "InternalServerError", "Please retry.", Fault.TRANSIENT, Scope.PROVIDER),
    ],
)
def test_a_refusal_has_its_name_and_its_reach(status: int, code: str, message: str, fault: Fault, scope: Scope) -> None:
    told, said = words_of({"error": {"code": code, "message": message}}, "")

    error = classify(Refused(status, told, said), FAULTS, creates=True)

    assert (error.fault, error.scope) == (fault, scope)
    assert code in error.detail
    assert error.may_have_created == (status == 500)


def test_what_stands_in_the_details_of_an_error_decides_too() -> None:
    outer = "The resource operation completed with terminal provisioning state 'Failed'."
    inner = {"code": "ZonalAllocationFailed", "message": "Allocation failed in the zone."}
    body = {"error": {"code": "ResourceOperationFailure", "message": outer, "details": [inner]}}

    error = classify(Refused(409, *words_of(body, "")), FAULTS, creates=True)

    assert error.fault is Fault.NO_CAPACITY
    assert outer in error.detail
    assert inner["message"] in error.detail


@pytest.mark.parametrize("body", [None, [], {}, {"error": None}, {"error": {"details": [3]}}, "no"])
def test_an_error_of_no_known_form_is_still_an_error(body: Any) -> None:
    error = classify(Refused(500, *words_of(body, "<html>")), FAULTS, creates=True)

    assert error.fault is Fault.TRANSIENT


@pytest.mark.parametrize(
    ("state", "codes", "condition", "said"),
    [
        ("Creating", [], NodeCondition.PENDING, ""),
        ("Creating", ["PowerState/running"], NodeCondition.PENDING, ""),
        ("Creating", ["PowerState/deallocated"], NodeCondition.STOPPED, "evicted"),
        ("Succeeded", ["ProvisioningState/succeeded"], NodeCondition.PENDING, "not shown"),
        ("Succeeded", ["PowerState/running"], NodeCondition.RUNNING, ""),
        ("Updating", ["PowerState/running"], NodeCondition.RUNNING, ""),
        ("Succeeded", ["PowerState/stopped"], NodeCondition.STOPPED, "bills on"),
        ("Succeeded", ["PowerState/deallocating"], NodeCondition.STOPPED, "deallocated"),
        ("Succeeded", ["PowerState/deallocated"], NodeCondition.STOPPED, "evicted"),
        ("Succeeded", ["PowerState/hibernated"], NodeCondition.UNKNOWN, "hibernated"),
        ("Deleting", ["PowerState/running"], NodeCondition.STOPPED, "deleted"),
        ("Failed", ["ProvisioningState/failed/AllocationFailed"], NodeCondition.FAILED, "AllocationFailed"),
        ("Failed", ["ProvisioningState/failed/X", "PowerState/running"], NodeCondition.RUNNING, ""),
        ("Failed", [], NodeCondition.UNKNOWN, "failed"),
    ],
)
def test_the_states_of_a_spot_machine(state: str, codes: Sequence[str], condition: NodeCondition, said: str) -> None:
    statuses = [Fields({"code": code}, "a status") for code in codes]

    view = view_of(Fields(machine(state), "a machine"), statuses, {}, SETTINGS)

    assert view.condition is condition
    assert said in view.reason
    assert bool(view.reason) == bool(said)
    assert view.fault is (Fault.NO_CAPACITY if condition is NodeCondition.FAILED else None)


def machine(state: str) -> Mapping[str, Any]:
    return {
        "id": f"{ROOT}/resourceGroups/SHUNTER-EASTUS/providers/Microsoft.Compute/virtualMachines/shn-a-b",
        "name": "shn-a-b",
        "properties": {"provisioningState": state, "priority": "Spot"},
    }
