# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What a comparison runs on, for Python and the command line alike. Imports neither torch nor transformers."""

from dataclasses import dataclass, field

from ..checks import check_integer


# By name of the task: the module in `tasks/` and its class.
TASKS = {
    "feature-extraction": ("embeddings", "FeatureExtraction"),
    "fill-mask": ("language_models", "FillMask"),
    "image-classification": ("classification", "ImageClassification"),
    "summarization": ("generation", "Summarization"),
    "text-classification": ("classification", "TextClassification"),
    "text-generation": ("language_models", "TextGeneration"),
    "translation": ("generation", "Translation"),
}


@dataclass(frozen=True)
class CompareOptions:
    """
    What [`compare`] runs the models on, and how.

    Args:
        split (`str`, *optional*): Split of a dataset from the Hub or a folder; `"test"` by default. A file has none.
        text_column (`str`, *optional*, defaults to `"text"`): Column with the texts.
        label_column (`str`, *optional*):
            Column with the labels, or with the texts to generate; by default `"label"`, `"summary"` or `"translation"`.
        image_column (`str`, *optional*, defaults to `"image"`): Column with the images.
        samples (`int`, *optional*): Rows, or windows of a text, chosen at random; by default as many as the task usually takes.
        batch_size (`int`, *optional*): Samples in a batch; by default as many as the task usually takes.
        length (`int`, *optional*, defaults to 512): Tokens in a window; of other texts, tokens that are read or written.
        prefix (`str`, *optional*): What precedes each text to translate or summarise, as T5 needs it.
        seed (`int`, *optional*, defaults to 0): Chooses samples and masked tokens.
        bf16 (`bool`, *optional*, defaults to `False`): Run both models in bfloat16 instead of float32.
        no_memory (`bool`, *optional*, defaults to `False`): Do not measure peak memory, which loads both models once more.

    Example:

    ```python
    >>> from hf_sparse_hopfield.comparison import CompareOptions

    >>> CompareOptions(text_column="sentence", samples=200).length
    512

    ```
    """

    split: str | None = field(default=None, metadata={"help": "split of a dataset that has several (default: test)"})
    text_column: str = field(default="text", metadata={"help": "column with the texts"})
    label_column: str | None = field(
        default=None,
        metadata={
            "help": "column with the labels, or with the texts to generate (default: label, summary or translation)"
        },
    )
    image_column: str = field(default="image", metadata={"help": "column with the images"})
    samples: int | None = field(
        default=None,
        metadata={
            "help": "rows, or windows of a text, chosen at random (default: 64 windows, 100 texts to generate, or 1000 rows)"
        },
    )
    batch_size: int | None = field(
        default=None, metadata={"help": "samples in a batch (default: 1 window, 8 texts to generate, or 16 rows)"}
    )
    length: int = field(
        default=512, metadata={"help": "tokens in a window; of other texts, tokens that are read or written"}
    )
    prefix: str | None = field(
        default=None, metadata={"help": "what precedes each text to translate or summarise, as T5 needs it"}
    )
    seed: int = field(default=0, metadata={"help": "chooses samples and masked tokens"})
    bf16: bool = field(default=False, metadata={"help": "run both models in bfloat16 instead of float32"})
    no_memory: bool = field(
        default=False, metadata={"help": "do not measure peak memory, which loads both models once more"}
    )

    def __post_init__(self) -> None:
        check_integer("samples", self.samples, optional=True)
        check_integer("batch_size", self.batch_size, optional=True)
        check_integer("length", self.length, least=2)
        check_integer("seed", self.seed, least=0)
