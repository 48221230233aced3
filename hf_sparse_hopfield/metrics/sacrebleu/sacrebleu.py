# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""BLEU by the package sacrebleu, as a metric of evaluate."""

import datasets
import evaluate
import sacrebleu


_DESCRIPTION = (
    "BLEU of translations, with the tokenization and the signature of sacrebleu, so that results of others compare."
)
_CITATION = """@inproceedings{post-2018-call, title = "A Call for Clarity in Reporting {BLEU} Scores", author = "Post, Matt",
booktitle = "Proceedings of the Third Conference on Machine Translation: Research Papers", year = "2018", pages = "186--191"}"""
_INPUTS = """
Args:
    predictions (`list` of `str`): Translations.
    references (`list` of `str`, or of `list` of `str`): The right translation of each, or the same number of them for each.
    **options: For `sacrebleu.BLEU`, such as `tokenize`, `lowercase`, `smooth_method` or `effective_order`.

Returns:
    `dict`: `score`, from 0 to 100; `counts`, `totals`, `precisions`, `bp`, `sys_len`, `ref_len`; `signature`.

Example:

    >>> bleu = evaluate.load("metrics/sacrebleu")
    >>> bleu.compute(predictions=["a cat sits on the mat"], references=["a cat sat on the mat"])["score"]
    37.99178428257963
"""


class Sacrebleu(evaluate.Metric):
    """Corpus BLEU."""

    def _info(self):
        text, texts = datasets.Value("string"), datasets.Sequence(datasets.Value("string"))
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=[datasets.Features({"predictions": text, "references": form}) for form in (texts, text)],
            codebase_urls=["https://github.com/mjpost/sacrebleu"],
        )

    def _compute(self, predictions, references, **options):
        references = [[texts] if isinstance(texts, str) else texts for texts in references]
        if len({len(texts) for texts in references}) > 1:
            raise ValueError("sacrebleu needs the same number of references for each translation.")
        metric = sacrebleu.BLEU(**options)
        found = metric.corpus_score(predictions, [list(texts) for texts in zip(*references)])  # noqa: B905
        names = ("score", "counts", "totals", "precisions", "bp", "sys_len", "ref_len")
        return {**{name: getattr(found, name) for name in names}, "signature": str(metric.get_signature())}
