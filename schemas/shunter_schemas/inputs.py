"""`inputs`: read-only data that every node gets before its ranks start."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from shunter_schemas.base import Part, SecretName, text_like

InputName = Annotated[
    str,
    text_like(
        r"^[A-Za-z][A-Za-z0-9_-]{0,62}$", "must be 1 to 63 letters, digits, `_` and `-`, and begin with a letter"
    ),
]


class Input(Part):
    """One input. Its digests are fixed at the first attempt, so that later attempts read the same bytes."""

    model_config = ConfigDict(serialize_by_alias=True)

    from_: Annotated[str, StringConstraints(min_length=1, max_length=2048)] = Field(
        alias="from",
        description="Where it comes from: `bundle:bun_…`, a folder beside the document (the CLI uploads it), "
        "or a URL (s3, gs, az, https, hf).",
        examples=["bundle:bun_5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"],
    )
    mode: Literal["copy", "stream"] = Field(
        default="copy",
        description="`copy`: on the node's disk before the ranks start. `stream`: read while training.",
        examples=["copy"],
    )
    secret: SecretName | None = Field(
        default=None, description="The stored secret that opens the place.", examples=["ACME_S3"]
    )
