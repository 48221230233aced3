# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import logging
import warnings

from transformers.utils import logging as transformers_logging

from hf_sparse_hopfield.cli.main import run_safely


def test_each_warning_appears_once_and_in_one_look(capsys):
    def run():
        for _ in range(2):
            transformers_logging.get_logger("transformers.models").warning("Some weights are new.")
            logging.getLogger("hf_sparse_hopfield.retrieval").warning("ours, %d", 7)
            warnings.warn("of torch", UserWarning)
            warnings.warn("will be removed", FutureWarning)
        assert not transformers_logging.is_progress_bar_enabled()

    library = logging.getLogger("transformers")
    before = (library.propagate, set(library.handlers), transformers_logging.is_progress_bar_enabled())
    assert run_safely(run, debug=False) == 0
    assert capsys.readouterr().err == "warning: Some weights are new.\nwarning: ours, 7\nwarning: of torch\n"
    assert before == (library.propagate, set(library.handlers), transformers_logging.is_progress_bar_enabled())
