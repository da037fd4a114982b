"""Whether a DeepSpeed document can work at all: one function over all the rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shunter_schemas.deepspeed.batch import batch_findings
from shunter_schemas.deepspeed.keys import key_findings
from shunter_schemas.deepspeed.learning import optimizer_findings, parameter_findings, scheduler_findings
from shunter_schemas.deepspeed.reading import Finding, Setting, autos
from shunter_schemas.deepspeed.rules import rule_findings

_OWN_AUTOS = (("data_types", "keep_in_fp32_modules"), ("pipeline",), ("expert_parallel",))
"""Where DeepSpeed itself takes `auto`."""


def document_findings(document: Any, setting: Setting) -> Iterator[Finding]:
    """Everything that is wrong with a DeepSpeed document."""
    if not isinstance(document, Mapping):
        yield Finding((), "a DeepSpeed document is an object")
        return
    yield from key_findings(document, setting)
    yield from batch_findings(document, setting)
    yield from rule_findings(document, setting)
    yield from parameter_findings(document)
    yield from optimizer_findings(document)
    yield from scheduler_findings(document)
    if not setting.takes_auto:
        for path in autos(document):
            if not any(path[: len(own)] == own for own in _OWN_AUTOS):
                yield Finding(path, "`auto` is resolved by Hugging Face's libraries in scripts; give the value")
