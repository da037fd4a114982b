"""Reads a job's options for an instance (`placement.options.NAME`) into the plugin's own model."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from shunter_providers.contract import Fault, Intent, ProviderError, Scope

_Options = TypeVar("_Options", bound=BaseModel)


def read_options(intent: Intent, model: type[_Options], instance: str) -> _Options:
    """The options.

    Raises:
        ProviderError: `INVALID`, naming each that is wrong by its place in the document.
    """
    try:
        return model.model_validate(dict(intent.options))
    except ValidationError as exc:
        faults = "; ".join(
            f"placement.options.{instance}.{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
            for fault in exc.errors(include_url=False, include_input=False)
        )
        raise ProviderError(Fault.INVALID, faults, scope=Scope.PROVIDER) from None
