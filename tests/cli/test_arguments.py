# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import argparse
import dataclasses

import pytest

from hf_sparse_hopfield.calibration.recipe import CalibrationOptions, InputOptions
from hf_sparse_hopfield.cli import convert
from hf_sparse_hopfield.cli.arguments import CALIBRATION_ARGUMENTS, calibration_options, given, input_options


@pytest.fixture
def parser():
    parser = argparse.ArgumentParser()
    convert.add_arguments(parser)
    return parser


def test_what_the_user_leaves_out_is_the_recipe(parser):
    arguments = parser.parse_args(["dense", "sparse"])
    assert calibration_options(arguments) == CalibrationOptions() and input_options(arguments) == InputOptions()
    assert given(arguments, CALIBRATION_ARGUMENTS) == {} and arguments.batches is None


def test_every_option_can_be_given(parser):
    values = {"objective": "kl", "refine_steps": 3, "refine_on": "dense", "learning_rate": 0.2, "max_error": 0.1}
    values |= {"search_batches": 5, "rows": 7, "seed": 9}
    line = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    arguments = parser.parse_args(["dense", "sparse", "--alpha", "search", "--layerwise", *line])
    assert calibration_options(arguments) == CalibrationOptions(alpha="search", layerwise=True, **values)
    arguments = parser.parse_args(["dense", "sparse", "--objective", "support", "--target_support", "0.2"])
    assert calibration_options(arguments) == CalibrationOptions(objective="support", target_support=0.2)
    assert calibration_options(parser.parse_args(["a", "b", "--budget", "0.1"])) == CalibrationOptions(budget=0.1)
    arguments = parser.parse_args(["a", "b", "--batch_size", "2", "--length", "64", "--seed", "0"])
    assert input_options(arguments) == InputOptions(batch_size=2, length=64)
    assert given(arguments, ("batch_size", "length", "seed")) == {"batch_size": 2, "length": [64], "seed": 0}


def test_help_tells_every_option_with_its_default(parser):
    printed = " ".join(parser.format_help().split())
    for options in (CalibrationOptions, InputOptions):
        for field in dataclasses.fields(options):
            assert f"--{'no_' if field.default is True else ''}{field.name}" in printed
            if field.default not in (None, False) and "help" in field.metadata:
                assert f"{field.metadata['help']} (default: {field.default})" in printed


def test_values_are_read_as_the_types_of_the_options(parser, capsys):
    for wrong in (["--rows", "0.5"], ["--objective", "loss"], ["--budget", "small"]):
        with pytest.raises(SystemExit):
            parser.parse_args(["dense", "sparse", *wrong])
        assert wrong[0] in capsys.readouterr().err
