"""`source`: where the user's own code comes from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from shunter_schemas.base import Part, SecretName, text_like

BUNDLE_ID_PATTERN = r"^bun_[0-9a-f]{64}$"

BundleId = Annotated[str, text_like(BUNDLE_ID_PATTERN, "must be `bun_` and 64 hex digits, as the upload answered it")]
"""`bun_` and the SHA-256 of the uploaded archive."""

GitUrl = Annotated[
    str,
    text_like(r"^(https?|ssh|git|file)://[^\s\x00-\x1f]+$", "must be a URL (https, ssh, git or file)", max_length=2048),
]
GitRef = Annotated[
    str,
    text_like(r"^[A-Za-z0-9_][A-Za-z0-9._/+-]{0,254}$", "must be the name of a branch, tag or commit"),
]

_BUNDLE_EXAMPLE = "bun_" + "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"


class FolderSource(Part):
    """A folder on the user's machine. The CLI uploads it and submits a bundle in its place."""

    kind: Literal["folder"] = Field(description="A folder on the user's machine.", examples=["folder"])
    path: Annotated[str, StringConstraints(min_length=1, max_length=1024)] = Field(
        default=".", description="The folder, relative to the job document.", examples=["."]
    )


class BundleSource(Part):
    """An archive that was uploaded with `POST /v1/bundles`."""

    kind: Literal["bundle"] = Field(description="An uploaded archive.", examples=["bundle"])
    id: BundleId = Field(description="The bundle's id, as `POST /v1/bundles` answered it.", examples=[_BUNDLE_EXAMPLE])


class GitSource(Part):
    """A git repository, cloned on the node. The first attempt resolves `ref` to a commit, which later ones use."""

    kind: Literal["git"] = Field(description="A git repository.", examples=["git"])
    url: GitUrl = Field(
        description="The repository's URL, without credentials.", examples=["https://github.com/acme/sft.git"]
    )
    ref: GitRef | None = Field(
        default=None,
        description="A branch, tag or commit. Null: the repository's default branch.",
        examples=["main"],
    )
    secret: SecretName | None = Field(
        default=None, description="The stored secret that opens the repository.", examples=["GIT_TOKEN"]
    )


Source = Annotated[FolderSource | BundleSource | GitSource, Field(discriminator="kind")]
