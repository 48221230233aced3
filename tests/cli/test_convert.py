# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, CLIPImageProcessor, LlavaProcessor, ViTImageProcessor

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.calibration import calibration
from hf_sparse_hopfield.checkpoints import conversion, load_model
from hf_sparse_hopfield.checkpoints.loading import load_tokenizer
from hf_sparse_hopfield.cli import main
from hf_sparse_hopfield.demo import make_tokenizer
from hf_sparse_hopfield.demo.text import TEXT
from hf_sparse_hopfield.hub import support_sizes
from hf_sparse_hopfield.sample_inputs import text_batches

from ..leftovers import leftovers
from ..tiny_families import tiny_family
from ..tiny_models import SPECIFICATIONS, tiny_model


ROOT = Path(__file__).parents[2]


def test_convert_command_with_calibration(source, tmp_path, capsys):
    output = tmp_path / "sparse"
    arguments = ["convert", str(source), str(output), "--alpha", "1.5", "--text", str(tmp_path / "text.txt")]
    arguments += ["--length", "32", "--batches", "4", "--refine_steps", "3", "--json"]
    assert main(arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["model"] == "SparseHopfieldLlamaForCausalLM" and result["layers"] == 2
    assert result["calibration"]["refined"] == 3
    compared = {"divergence", "cosine", "dense_loss", "sparse_loss", "mean_support", "held_out_batches"}
    assert set(result["comparison"]) == compared and result["comparison"]["held_out_batches"] >= 1
    written = {path.name for path in output.iterdir()}
    assert {"model.safetensors", "config.json", "README.md", "calibration.json", "tokenizer.json"} <= written
    card = (output / "README.md").read_text()
    assert "held-out batches of text.txt (1)" in card and "convert on text like that of the model's use" in card
    counted = support_sizes(load_model(str(output)), _held_out_of(source, tmp_path, length=32))
    shares = [share for layer in counted.values() for share in layer]
    assert result["comparison"]["mean_support"] == pytest.approx(sum(shares) / len(shares), abs=1e-6)
    assert "sees up to 32 keys" in card
    assert "library_name: transformers" in card and "sparse-hopfield" in card and "model.layers.0.self_attn" in card
    assert str(tmp_path) not in json.dumps(json.loads((output / "config.json").read_text()))
    assert AutoModelForCausalLM.from_pretrained(output).config.sparse_hopfield.alpha == 1.5

    assert main(arguments) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert main([*arguments, "--overwrite"]) == 0
    capsys.readouterr()
    calibrated = [str(output), str(tmp_path / "calibrated"), "--text", str(tmp_path / "text.txt"), "--length", "32"]
    assert main(["calibrate", *calibrated, "--objective", "support", "--target_support", "0.3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["calibration"]["mean_support"] == pytest.approx(0.3, abs=0.05)


def _held_out_of(source, tmp_path, length):
    """What 4 batches of a text and the one held out of it end with."""
    batches = text_batches(
        load_model(str(source)),
        load_tokenizer(str(source)),
        (tmp_path / "text.txt").read_text(),
        length=length,
        count=5,
        least=2,
    )
    return batches[-1:]


def _convert(source, tmp_path, *text):
    return [
        "convert",
        str(source),
        str(tmp_path / "sparse"),
        "--alpha",
        "2",
        "--text",
        *text,
        str(tmp_path / "text.txt"),
    ]


@pytest.mark.parametrize("more", [[], ["--rank", "2"]])
def test_convert_command_with_distillation(source, tmp_path, capsys, more):
    arguments = [*_convert(source, tmp_path, "self"), "--json", "--checkpoints", str(tmp_path / "kept"), *more]
    arguments += "--length 16 32 --batch_size 2 --batches 8 --refine_steps 2".split()
    arguments += "--distill --distill_steps 4 --layer_steps 2 --max_support 0.5".split()
    assert main(arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["distillation"]["steps"] == 6 and 0 < result["distillation"]["mean_support"] <= 1
    assert result["comparison"]["divergence"] == result["distillation"]["divergence"]
    report = json.loads((tmp_path / "sparse" / "distillation.json").read_text())
    assert report["options"]["max_support"] == 0.5 and set(report["held_out"]) == {"before", "after"}
    card = (tmp_path / "sparse" / "README.md").read_text()
    assert "trained for 6 steps" in card and "text that the dense model wrote itself and text.txt" in card
    assert "counted on held-out batches" in card and "calibrate on longer ones" in card and "fell" not in card
    with torch.no_grad():
        model = AutoModelForCausalLM.from_pretrained(tmp_path / "sparse")
        assert model(input_ids=torch.arange(12)[None]).logits.isfinite().all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--distill_steps", "4"], "--distill_steps is for --distill"),
        (["--distill", "--rank", "0"], "rank must be"),
        (["--distill", "--max_support", "0.1", "--distill_budget", "0.1"], "exclude each other"),
        (["--distill", "--max_support", "2"], "max_support must lie in (0, 1)"),
    ],
)
def test_distillation_options_that_mean_nothing(source, tmp_path, capsys, options, said):
    assert main([*_convert(source, tmp_path), *options]) == 1
    assert said in capsys.readouterr().err and not (tmp_path / "sparse").exists()


@pytest.mark.parametrize("text", ["word", "  \n\t ", ""])
def test_too_little_text_is_refused_with_the_amount(source, tmp_path, capsys, text):
    (tmp_path / "short.txt").write_text(text)
    assert (
        main(["convert", str(source), str(tmp_path / "sparse"), "--alpha", "2", "--text", str(tmp_path / "short.txt")])
        == 1
    )
    error = capsys.readouterr().err
    assert (
        "too little" in error and "2 windows of 16 tokens are needed" in error and not (tmp_path / "sparse").exists()
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--text", "{short}"],
            "less than one window of 64: 128 tokens are needed for 2 windows, or a length of at most",
        ),
        (["--text", "{text}", "{text}"], "twice: what is held out of one would be seen in the other"),
        (["--text", "self", "self"], "--text names 'self' twice"),
        (["--text", "{binary}"], "binary.txt' cannot be read as a text in UTF-8: "),
        (["--text", "{cut}"], "cut.txt.gz' cannot be read as gzip: "),
    ],
)
def test_texts_that_cannot_be_calibrated_on(source, tmp_path, capsys, options, said):
    files = {name: tmp_path / f"{name}.txt" for name in ("short", "text", "binary")} | {"cut": tmp_path / "cut.txt.gz"}
    files["short"].write_text(TEXT[:160])
    files["binary"].write_bytes(b"\xff\xfe\x00")
    files["cut"].write_bytes(gzip.compress(TEXT.encode())[:200])
    options = [option.format(**files) for option in options]
    assert main(["convert", str(source), str(tmp_path / "sparse"), "--alpha", "2", *options]) == 1
    assert said in capsys.readouterr().err and not (tmp_path / "sparse").exists()


def test_a_text_that_gives_fewer_or_shorter_batches_says_so(source, tmp_path, capsys):
    arguments = [
        "convert",
        str(source),
        str(tmp_path / "sparse"),
        "--alpha",
        "2",
        "--refine_steps",
        "0",
        "--overwrite",
    ]
    arguments += ["--text", str(tmp_path / "text.txt"), "--length", "64"]
    assert main([*arguments, "--batches", "1000"]) == 0
    assert "--batches 1000 and what is held out need 1008 batches, and the text gives" in capsys.readouterr().err
    (tmp_path / "text.txt").write_text(TEXT[:350])
    assert main(arguments) == 0
    assert "tokens instead of 64, so that there are 2. 128 tokens would do." in capsys.readouterr().err


def test_to_dense(source, tmp_path, capsys):
    assert main(["convert", str(source), str(tmp_path / "sparse"), "--alpha", "1.5"]) == 0
    capsys.readouterr()
    assert main(["convert", str(tmp_path / "sparse"), str(tmp_path / "again"), "--to_dense", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["model"] == "LlamaForCausalLM" and result["difference"] < 1e-4
    assert result["output"] == str(tmp_path / "again") and (tmp_path / "again" / "tokenizer.json").exists()


def test_budget_command(source, tmp_path, capsys):
    text = ["--text", str(tmp_path / "text.txt"), "--length", "32", "--batches", "2"]
    assert main(["convert", str(source), str(tmp_path / "b"), "--budget", "0.02", *text, "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)["comparison"]
    assert compared["sparse_loss"] <= 1.02 * compared["dense_loss"]


@pytest.mark.parametrize("name, layers", [("vit", ["--layers", "1"]), ("t5", [])])
def test_random_inputs(name, layers, tmp_path, capsys):
    tiny_model(name).save_pretrained(tmp_path / name)
    arguments = [str(tmp_path / name), str(tmp_path / "out"), "--random", "--batches", "2"]
    arguments += ["--length", "16", "--refine_steps", "2"]
    assert main(["convert", *arguments, *layers, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["calibration"]["refined"] == 2 and result["comparison"]["cosine"] > 0.5
    settings = load_model(str(tmp_path / "out")).config.sparse_hopfield
    assert settings.layers == ([1] if layers else None)
    assert len(settings.overrides) == result["layers"] == (1 if layers else 6)  # t5: two decoder layers have two each


def test_errors_are_told_before_work(source, tmp_path, capsys):
    output = str(tmp_path / "out")
    assert main(["convert", str(source), output, "--alpha", "search"]) == 1
    assert "--text" in capsys.readouterr().err
    assert main(["calibrate", str(source), output]) == 1
    assert main(["convert", str(tmp_path / "nothing"), output]) == 1
    error = capsys.readouterr().err
    assert "nothing" in error and "Traceback" not in error
    assert main(["convert", str(source), output, "--text", str(tmp_path / "no.txt")]) == 1
    assert main(["convert", str(source), output, "--to_dense"]) == 1
    assert "already dense" in capsys.readouterr().err
    assert main(["convert", str(source), output, "--to_dense", "--beta", "2"]) == 1
    assert "--beta" in capsys.readouterr().err
    for name, value in {
        **{
            "refine_steps": 3,
            "refine_on": "loss",
            "learning_rate": 0.1,
            "max_error": 0.05,
            "rows": 64,
            "objective": "kl",
        },
        **{"target_support": 0.5, "search_batches": 8, "seed": 0, "length": 512, "batches": 3, "batch_size": 1},
    }.items():
        assert main(["convert", str(source), output, f"--{name}", str(value)]) == 1
        assert f"--{name} needs something to calibrate on" in capsys.readouterr().err
    text = ["--text", str(tmp_path / "text.txt")]
    for wrong, match in (
        (["--max_error", "0.1"], "--max_error is for --alpha search"),
        (["--max_error", "0.1", "--budget", "0.1"], "--max_error is for --alpha search without --budget"),
        (["--refine_steps", "0", "--learning_rate", "0.1"], "--learning_rate is for refining"),
        (["--budget", "0.1", "--refine_on", "loss"], "--refine_on is for refining"),
    ):
        assert main(["convert", str(source), output, *text, *wrong]) == 1
        assert match in capsys.readouterr().err
    with pytest.raises(ValueError, match="refine_steps"):
        main(["convert", str(source), output, "--refine_steps", "3", "--debug"])
    with pytest.raises(SystemExit) as stop:
        main(["convert", str(source), output, "--alpha", "much"])
    assert stop.value.code == 2
    assert not Path(output).exists() and leftovers(tmp_path) == []


def test_where_no_inputs_can_be_made_it_is_told_at_once(tmp_path, capsys, monkeypatch):
    tiny_family("bros").save_pretrained(tmp_path / "dense")  # wants the boxes of words
    arguments = ["convert", str(tmp_path / "dense"), str(tmp_path / "out")]
    monkeypatch.setattr(conversion, "calibrate", lambda *args, **kwargs: pytest.fail("too late"))
    assert main([*arguments, "--random", "--refine_steps", "0"]) == 1
    error = capsys.readouterr().err
    assert "could not make random inputs that SparseHopfieldBrosModel takes" in error and "--no_verify" in error
    assert main([*arguments, "--no_verify"]) == 0


def test_processors_are_asked_for_their_tokenizer(tmp_path, capsys):
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    text_config = {**SPECIFICATIONS["llava"][2]["text_config"], "vocab_size": len(tokenizer)}
    image_token_id = tokenizer.convert_tokens_to_ids("<image>")
    tiny_model("llava", text_config=text_config, image_token_id=image_token_id).save_pretrained(tmp_path / "llava")
    image_processor = CLIPImageProcessor(size={"shortest_edge": 8}, crop_size={"height": 8, "width": 8})
    LlavaProcessor(image_processor, tokenizer, patch_size=4).save_pretrained(tmp_path / "llava")
    (tmp_path / "text.txt").write_text("to be or not to be " * 40)
    text = ["--text", str(tmp_path / "text.txt"), "--length", "12", "--batches", "2", "--refine_steps", "0", "--json"]
    result = main(["convert", str(tmp_path / "llava"), str(tmp_path / "out"), "--layers", "language_model", *text])
    captured = capsys.readouterr()
    assert result == 0, captured.err
    assert "warnings" not in json.loads(captured.out)["calibration"]
    assert main(["convert", str(tmp_path / "llava"), str(tmp_path / "two"), *text]) == 0
    assert "do not reach 2 of the 4" in json.loads(capsys.readouterr().out)["calibration"]["warnings"][0]

    tiny_model("vit").save_pretrained(tmp_path / "vit")
    ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(tmp_path / "vit")
    assert main(["convert", str(tmp_path / "vit"), str(tmp_path / "three"), *text]) == 1
    assert "needs a tokenizer" in capsys.readouterr().err


def test_a_killed_calibration_goes_on_where_it_was(source, tmp_path, capsys):
    (tmp_path / "long.txt").write_text(TEXT * 20)
    state = tmp_path / "state"

    def arguments(output, *more):
        arguments = ["convert", source, tmp_path / output, "--alpha", "1.5", "--text", tmp_path / "long.txt"]
        arguments += ["--length", "32", "--batches", "20", "--refine_steps", "40", *more]
        return list(map(str, arguments))

    def config(output):
        return json.loads((tmp_path / output / "config.json").read_text())["sparse_hopfield"]

    command = [sys.executable, "-m", "hf_sparse_hopfield.cli", *arguments("killed", "--resume_from", state)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    while not (state.exists() and torch.load(state, weights_only=True).get("refining")):
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert torch.load(state, weights_only=True)["refining"]["steps"] < 40
    assert not (tmp_path / "killed").exists()
    assert main(arguments("killed", "--resume_from", state)) == 0
    assert main(arguments("whole")) == 0
    assert config("killed") == config("whole")


def test_sparsemax_has_its_own_refinement(tmp_path, monkeypatch):
    seen = []

    def refine(model, batches, refiner, refinement, *args, **kwargs):
        seen.append((refinement.steps, refinement.learning_rate, len(batches)))
        return []

    monkeypatch.setattr(calibration, "refine", refine)
    usual, sparsemax = (32, 0.05, 32), (64, 0.1, 64)
    source = tmp_path / "dense"
    tiny_model("llama").save_pretrained(source)
    for alpha in (1.5, 2.0):
        to_sparse_hopfield(tiny_model("llama"), {"alpha": alpha}).save_pretrained(tmp_path / str(alpha))
    settings = {"alpha": 1.5, "overrides": {0: {"alpha": [2.0, 1.9, 1.8, 1.8]}, 1: {"alpha": 2.0}}}
    to_sparse_hopfield(tiny_model("llama"), settings).save_pretrained(tmp_path / "searched")
    few = ["--random", "--length", "4", "--rows", "4", "--search_batches", "1", "--overwrite", "--no_verify"]
    for command, origin, alpha, expected in (
        ("convert", source, ["--alpha", "1.5"], usual),
        ("convert", source, [], sparsemax),
        ("convert", source, ["--alpha", "search"], usual),
        ("calibrate", tmp_path / "1.5", [], usual),
        ("calibrate", tmp_path / "1.5", ["--alpha", "2"], sparsemax),
        ("calibrate", tmp_path / "2.0", [], sparsemax),
        ("calibrate", tmp_path / "2.0", ["--alpha", "search"], usual),
        ("calibrate", tmp_path / "searched", [], sparsemax),
        ("calibrate", source, [], sparsemax),
    ):
        assert main([command, str(origin), str(tmp_path / "out"), *alpha, *few]) == 0
        assert seen[-1] == expected
    assert len(seen) == 9
