"""`environment`: what is installed and set where the ranks run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from shunter_schemas.base import CLOSED_KEYS, Part, Path, SecretName, VariableName, text_like

Requirement = Annotated[
    str, text_like(r"^[A-Za-z0-9][^\n\r\x00]{0,511}$", "must be one line that names a package, without options")
]
Version = Annotated[str, text_like(r"^[0-9]{1,3}(\.[0-9]{1,4}){0,2}$", "must be a version such as 3.11")]
ImageName = Annotated[str, text_like(r"^[a-z0-9][A-Za-z0-9._/:@-]{0,510}$", "must be the name of a container image")]


class Registry(Part):
    """A container registry that needs credentials."""

    secret: SecretName = Field(description="The stored secret with user and token.", examples=["GHCR"])


class Environment(Part):
    """Prepared on every node before the ranks start."""

    image: ImageName | None = Field(
        default=None,
        description="A container image that nodes run, with `sh` and Python 3.8 or newer in it, and torch for "
        "trainings. Nodes that are machines run it under docker. Null: the provider's own, or the machine as it is.",
        examples=["ghcr.io/acme/train:1"],
    )
    registry: Registry | None = Field(
        default=None, description="Credentials for the image's registry.", examples=[{"secret": "GHCR"}]
    )
    python: Version | None = Field(default=None, description="Python version. Null: the node's own.", examples=["3.11"])
    torch: Version | None = Field(default=None, description="torch version. Null: the node's own.", examples=["2.13"])
    requirements: Annotated[tuple[Requirement, ...], Field(max_length=512)] = Field(
        default=(),
        description="Packages that pip installs over the node's own.",
        examples=[["einops"]],
    )
    requirements_file: Path | None = Field(
        default=None, description="A requirements file in the source.", examples=["requirements.txt"]
    )
    setup: Annotated[
        tuple[Annotated[str, StringConstraints(min_length=1, max_length=32_768)], ...], Field(max_length=64)
    ] = Field(
        default=(),
        description="Commands for `bash -eo pipefail -c`, run in the source folder.",
        examples=[["make -C kernels"]],
    )
    variables: dict[VariableName, Annotated[str, StringConstraints(max_length=32_768)]] = Field(
        default_factory=dict,
        json_schema_extra=CLOSED_KEYS,
        description="Environment variables of the ranks; `${…}` is replaced as in arguments.",
        examples=[{"TOKENIZERS_PARALLELISM": "false"}],
    )
    secrets: Annotated[tuple[SecretName, ...], Field(max_length=64)] = Field(
        default=(),
        description="Stored secrets that become environment variables of the same name.",
        examples=[["HF_TOKEN"]],
    )
