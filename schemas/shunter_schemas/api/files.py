"""What a job leaves behind, and what a user uploads."""

from __future__ import annotations

from pydantic import Field

from shunter_schemas.api.base import Answer, Timestamp

_AT = "2026-11-30T04:53:15.123Z"
_SHA256 = "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"


class Artifact(Answer):
    """One file that the job left."""

    path: str = Field(description="Its path in the output folder.", examples=["model.safetensors"])
    size_bytes: int = Field(description="Its size.", examples=[3154240])
    sha256: str = Field(description="Digest of its bytes.", examples=[_SHA256])
    generation: int = Field(default=1, description="The start of the gang that wrote it.", examples=[1])
    created_at: Timestamp | None = Field(default=None, description="When it was stored.", examples=[_AT])
    href: str = Field(
        description="Where its bytes are.",
        examples=["/v1/jobs/job_01kb9m4t8zq3v5x7y9a1c3e5g7/artifacts/model.safetensors"],
    )


class ArtifactPage(Answer):
    """Files, by path."""

    items: tuple[Artifact, ...] = Field(
        description="The files of this page.",
        examples=[[{"path": "a.txt", "size_bytes": 3, "sha256": _SHA256, "href": "/v1/jobs/job_1/artifacts/a.txt"}]],
    )
    next_cursor: str | None = Field(
        default=None, description="Pass it as `cursor` for the next page. Null: this is the last.", examples=["YS50eHQ"]
    )


class Checkpoint(Answer):
    """A committed checkpoint: whole, verified, and good to resume from."""

    step: int = Field(description="The step after which it was taken.", examples=[100])
    generation: int = Field(description="The start of the gang that wrote it.", examples=[1])
    size_bytes: int = Field(description="Size of all its files.", examples=[9462784])
    files: int = Field(description="Number of its files.", examples=[4])
    values: dict[str, float] = Field(
        default_factory=dict, description="Metrics at that step.", examples=[{"val_loss": 2.2}]
    )
    committed_at: Timestamp = Field(description="When it was committed.", examples=[_AT])
    from_job: str | None = Field(
        default=None,
        description="The job that wrote it, where this job is a retry that began with it.",
        examples=["job_01kb9m4t8zq3v5x7y9a1c3e5g7"],
    )


class CheckpointPage(Answer):
    """Checkpoints, newest first."""

    items: tuple[Checkpoint, ...] = Field(
        description="The checkpoints.",
        examples=[[{"step": 100, "generation": 1, "size_bytes": 9462784, "files": 4, "committed_at": _AT}]],
    )
    next_cursor: str | None = Field(
        default=None, description="Pass it as `cursor` for the next page. Null: this is the last.", examples=["MTAw"]
    )


class Bundle(Answer):
    """An uploaded archive. The same bytes have the same id."""

    id: str = Field(description="`bun_` and the archive's digest.", examples=[f"bun_{_SHA256}"])
    size_bytes: int = Field(description="Size of the archive.", examples=[20480])
    unpacked_bytes: int | None = Field(default=None, description="Size of what is inside.", examples=[81920])
    files: int | None = Field(default=None, description="Number of files inside.", examples=[12])
    created_at: Timestamp | None = Field(default=None, description="When it was first uploaded.", examples=[_AT])
