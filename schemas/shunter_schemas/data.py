"""`workload.data`: what is trained on, one model a kind."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field, JsonValue, Tag

from shunter_schemas.base import (
    CLOSED_KEYS,
    Count,
    CountOrZero,
    OpenFraction,
    Part,
    Path,
    Target,
    Text,
    VariableName,
    text_like,
)

Tokenizer = Annotated[
    str, text_like(r"^(bytes|model|input:.{1,1000})$", "must be `bytes`, `model` or `input:NAME[/path]`")
]


class ValidationSplit(Part):
    """Holds a share of the training data back. Which samples depends on the seed only."""

    fraction: OpenFraction = Field(description="Share of the samples that is held back.", examples=[0.05])


def _validation_form(value: Any) -> str:
    has_kind = "kind" in value if isinstance(value, dict) else isinstance(value, BaseModel) and hasattr(value, "kind")
    return "data" if has_kind else "split"


Validation = Annotated[
    Annotated[ValidationSplit, Tag("split")] | Annotated["Data", Tag("data")],
    Discriminator(_validation_form),
]


class _Data(Part):
    validation: Validation | None = Field(
        default=None,
        description='Data for the evaluation: `{"fraction": 0.05}` of this data, or a data document of its own. '
        "Null: none.",
        examples=[{"fraction": 0.05}],
    )


ImageSize = Annotated[
    Count | None,
    Field(
        description="Height and width that images are scaled to. Null: as the model's own files say, else 224.",
        examples=[224],
    ),
]
Label = Annotated[
    Text | None,
    Field(
        description="The member or column that holds the class, a whole number or a name, for models that classify "
        "texts: every text is a sample then. Null: the tokens themselves are learned.",
        examples=["label"],
    ),
]


class _Tokens(_Data):
    tokenizer: Tokenizer = Field(
        default="bytes",
        description="`bytes` (256 ids, no file needed), `model` (the model's own), or `input:NAME[/path]`.",
        examples=["bytes"],
    )
    sequence_length: Count | None = Field(
        default=None,
        description="Tokens of one sample. Null: the context of a `transformer` model.",
        examples=[4096],
    )


class SampleData(_Tokens):
    """Text that every node has, so that a first document needs no upload."""

    kind: Literal["sample"] = Field(description="Text that every node has.", examples=["sample"])
    name: Literal["python-docs"] = Field(
        default="python-docs",
        description="`python-docs`: the documentation texts of Python's standard library.",
        examples=["python-docs"],
    )


class TextData(_Tokens):
    """Plain text files, read as one stream and cut into samples of `sequence_length`."""

    kind: Literal["text"] = Field(description="Plain text files (UTF-8).", examples=["text"])
    path: Path = Field(
        description="Files, also as a pattern: `input:NAME/*.txt`, or relative to the source.",
        examples=["input:train/*.txt"],
    )


class JsonlData(_Tokens):
    """Files with one JSON object a line."""

    kind: Literal["jsonl"] = Field(description="One JSON object a line.", examples=["jsonl"])
    path: Path = Field(
        description="Files, also as a pattern: `input:NAME/*.jsonl`, or relative to the source.",
        examples=["input:train/*.jsonl"],
    )
    field: Text = Field(
        default="text", description="The member that holds the text, or a list of token ids.", examples=["text"]
    )
    label: Label = None
    packing: bool = Field(
        default=True,
        description="Whether several texts share a sample. False: one text a sample, cut or padded.",
        examples=[True],
    )


class ChatData(_Tokens):
    """Conversations: one JSON object a line (or parquet row) with `messages`, or ShareGPT's `conversations`."""

    kind: Literal["chat"] = Field(description="Conversations, one JSON object a line.", examples=["chat"])
    path: Path = Field(description="Files, also as a pattern.", examples=["input:train/*.jsonl"])
    template: Text = Field(
        default="tokenizer",
        description="`tokenizer` (its own chat template) or a Jinja template.",
        examples=["tokenizer"],
    )
    train_on: Literal["assistant", "all"] = Field(
        default="assistant", description="Whose words count for the loss.", examples=["assistant"]
    )
    packing: bool = Field(default=True, description="Whether several conversations share a sample.", examples=[True])


class ParquetData(_Tokens):
    """Parquet files with a text column."""

    kind: Literal["parquet"] = Field(description="Parquet files.", examples=["parquet"])
    path: Path = Field(description="Files, also as a pattern.", examples=["input:train/*.parquet"])
    field: Text = Field(
        default="text", description="The column that holds the text, or lists of token ids.", examples=["text"]
    )
    label: Label = None
    packing: bool = Field(default=True, description="Whether several texts share a sample.", examples=[True])


class ImageFolderData(_Data):
    """One folder of images a class."""

    kind: Literal["image_folder"] = Field(description="One folder of images a class.", examples=["image_folder"])
    path: Path = Field(description="The folder of folders.", examples=["input:images/train"])
    transform: Target | None = Field(
        default=None,
        description="`module:name` of a function from image (Pillow) to tensor. Null: any part of the image, either "
        "way round, for training, the middle for evaluation, scaled to `image_size` and normalised.",
        examples=["models:train_tf"],
    )
    image_size: ImageSize = None
    workers_per_gpu: CountOrZero = Field(default=4, description="Loader processes for each rank.", examples=[8])


class WebDatasetData(_Data):
    """Tar shards in WebDataset's layout."""

    kind: Literal["webdataset"] = Field(description="Tar shards in WebDataset's layout.", examples=["webdataset"])
    path: Path = Field(description="Shards, also as a pattern.", examples=["input:shards/*.tar"])
    samples: Count = Field(description="Samples in all shards together.", examples=[1281167])
    fields: dict[Text, Text] = Field(
        default_factory=dict,
        description="Name in the batch by file extension in the shard; `;` stands between extensions of which one is "
        "there. Empty: images are `pixel_values`, `cls` is `labels`.",
        examples=[{"jpg;png": "image", "cls": "label"}],
    )
    transform: Target | None = Field(
        default=None,
        description="`module:name` of a function over one sample, a mapping by the names of `fields`, that returns "
        "one. Null: images are prepared as in `image_folder`.",
        examples=["models:train_tf"],
    )
    image_size: ImageSize = None
    workers_per_gpu: CountOrZero = Field(default=4, description="Loader processes for each rank.", examples=[8])


class HuggingFaceData(_Tokens):
    """A Hugging Face data set in a folder."""

    kind: Literal["huggingface"] = Field(description="A Hugging Face data set.", examples=["huggingface"])
    name: Text = Field(
        description="Its folder, `input:NAME[/path]` or `./path` in the source: what `save_to_disk` wrote, or the "
        "parquet or JSON-lines files of a data set's repository. Other names are of the hub, which nodes do not reach.",
        examples=["input:corpus"],
    )
    revision: Text | None = Field(
        default=None, description="A revision. Null: the newest, fixed at the first attempt.", examples=["main"]
    )
    split: Text = Field(default="train", description="The split to train on.", examples=["train"])
    field: Text = Field(
        default="text", description="The column that holds the text, or lists of token ids.", examples=["text"]
    )
    label: Label = None
    packing: bool = Field(default=True, description="Whether several texts share a sample.", examples=[True])


class PythonData(_Data):
    """The user's own data set: `target(**arguments)` returns a map-style data set (`__len__`, `__getitem__`)."""

    kind: Literal["python"] = Field(description="The user's own data set.", examples=["python"])
    target: Target = Field(
        description="`module:name` of the factory; each item is a mapping that becomes `model(**batch)`.",
        examples=["data:train_set"],
    )
    arguments: dict[str, JsonValue] = Field(
        default_factory=dict, description="Keyword arguments of the factory.", examples=[{"split": "train"}]
    )
    workers_per_gpu: CountOrZero = Field(
        default=0, description="Loader processes for each rank. 0: loaded in the rank itself.", examples=[8]
    )


class SyntheticField(Part):
    """One random tensor of a synthetic sample."""

    shape: tuple[Count, ...] = Field(
        max_length=8, description="Shape without the batch axis; empty: a scalar.", examples=[[3, 224, 224]]
    )
    dtype: Literal["int64", "float32"] = Field(description="Type of its elements.", examples=["float32"])
    high: Count | None = Field(
        default=None,
        description="For `int64`: values are below this. For `float32`: null, values are standard normal.",
        examples=[1000],
    )


class SyntheticData(_Data):
    """Random data from the seed, for smoke tests and measurements."""

    kind: Literal["synthetic"] = Field(description="Random data from the seed.", examples=["synthetic"])
    samples: Count = Field(default=10_000, description="Samples of one epoch.", examples=[1281167])
    sequence_length: Count | None = Field(
        default=None,
        description="Tokens of one sample, for language models. Null: the context of a `transformer` model.",
        examples=[1024],
    )
    fields: dict[VariableName, SyntheticField] = Field(
        default_factory=dict,
        json_schema_extra=CLOSED_KEYS,
        description="The tensors of one sample by name. Empty: random tokens for a `transformer` model.",
        examples=[{"image": {"shape": [3, 32, 32], "dtype": "float32"}}],
    )


Data = Annotated[
    SampleData
    | TextData
    | JsonlData
    | ChatData
    | ParquetData
    | ImageFolderData
    | WebDatasetData
    | HuggingFaceData
    | PythonData
    | SyntheticData,
    Field(discriminator="kind"),
]
