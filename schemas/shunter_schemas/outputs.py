"""`outputs` and `tracking`: where results go besides the service's own store."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shunter_schemas.base import Part, SecretName, Text, text_like

StoreUri = Annotated[
    str, text_like(r"^(s3|gs|az)://[^\s\x00-\x1f]+$", "must begin with s3://, gs:// or az://", max_length=2048)
]


class Outputs(Part):
    """Where checkpoints and artifacts go."""

    uri: StoreUri | None = Field(
        default=None,
        description="A prefix; the job's id is appended. Null: the service's own artifact store.",
        examples=["s3://acme/runs"],
    )
    secret: SecretName | None = Field(
        default=None, description="The stored secret that opens the place.", examples=["ACME_S3"]
    )


class Tracking(Part):
    """An experiment tracker that gets the metrics too, under one run id across attempts."""

    kind: Literal["wandb", "mlflow", "tensorboard"] = Field(description="Which tracker.", examples=["wandb"])
    project: Text | None = Field(default=None, description="The tracker's project.", examples=["sft"])
    uri: Text | None = Field(
        default=None, description="Address of the tracking server.", examples=["https://mlflow.acme.example"]
    )
    secret: SecretName | None = Field(
        default=None, description="The stored secret with the tracker's key.", examples=["WANDB"]
    )
