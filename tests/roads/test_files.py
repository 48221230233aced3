# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Files: what `convert` reads, copies, replaces and leaves behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.checkpoints import convert_checkpoint, dense_checkpoint, load_model, load_tokenizer
from hf_sparse_hopfield.cli import main

from ..checkpoints.conftest import source  # noqa: F401
from ..leftovers import leftovers
from ..processes import run_python
from ..tiny_models import tiny_inputs, tiny_model, tiny_output
from .table import road


ROOT = Path(__file__).parents[2]
SECRETS = {
    "secrets.txt": "password",
    "service-account.json": '{"private_key": "..."}',
    "train.log": "loss 3.1",
    ".env": "TOKEN=1",
    "notes.md": "mine",
    "helper.py": "import os",
    "runs/events.out": "logs",
    "1_Pooling/secrets.txt": "password",
    "checkpoint-500/optimizer.pt": "state",
}


def start(*arguments):
    command = [sys.executable, "-m", "hf_sparse_hopfield.cli", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, preexec_fn=heeding_interrupts, **pipes)


def heeding_interrupts():
    """A shell lets what it runs in the background ignore Ctrl-C, and a process inherits that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def contents(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def refused(capsys, *arguments):
    """What a command that must fail prints, on one line and without a traceback."""
    assert main([str(argument) for argument in arguments]) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ")
    return error


@road("`convert` a folder in which secrets and logs lie beside the model", "equal")
def test_what_lies_beside_a_checkpoint_stays_there(source, tmp_path):  # noqa: F811
    """A real process converts such a folder; only files of the checkpoint arrive, and the log names the others."""
    (source / "modules.json").write_text('[{"path": "1_Pooling", "type": "Pooling"}]')
    kept = {
        "1_Pooling/config.json": "{}",
        "LICENSE-APACHE.txt": "free",
        "NOTICE": "us",
        "vocab.txt": "a",
        "additional_chat_templates/tool.jinja": "{{ x }}",
    }
    for name, text in {**SECRETS, **kept}.items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(text)
    process = start("convert", source, tmp_path / "out", "--alpha", "1.5", "--json")
    _, log = process.communicate()
    assert process.returncode == 0, log
    written = contents(tmp_path / "out")
    assert not SECRETS.keys() & written.keys() and written.keys() >= {*kept, "tokenizer.json", "model.safetensors"}
    left = next(line for line in log.splitlines() if "Not copied from" in line)
    assert "1_Pooling/secrets.txt, checkpoint-500/, helper.py, ..., service-account.json, train.log" in left
    expected = to_sparse_hopfield(load_model(str(source)), {"alpha": 1.5})
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.equal(tiny_output(loaded, tiny_inputs("llama")), tiny_output(expected, tiny_inputs("llama")))


@road("`convert` a folder with symbolic links to files elsewhere", "refused")
@pytest.mark.parametrize(
    "name", ["vocab.txt", "generation_config.json", "chat_template.jinja", "1_Pooling/config.json"]
)
def test_links_are_not_followed_out_of_the_folder(name, source, tmp_path, capsys):  # noqa: F811
    """A tokenizer file, template or setting is a link to a private file; the error names both, and nothing is written."""
    (tmp_path / "private").write_text("-----BEGIN PRIVATE KEY-----")
    (source / "modules.json").write_text('[{"path": "1_Pooling", "type": "Pooling"}]')
    (source / name).parent.mkdir(exist_ok=True)
    (source / name).unlink(missing_ok=True)
    (source / name).symlink_to(tmp_path / "private")
    error = refused(capsys, "convert", source, tmp_path / "out")
    assert f"{name} -> {tmp_path / 'private'}" in error and not (tmp_path / "out").exists()


@road("`convert` a snapshot of the Hub's cache, whose files are links to its blobs", "equal")
@pytest.mark.parametrize("blobs", ["models--me--bert/blobs", "blobs/ab"])
def test_the_links_of_the_hub_cache_work(blobs, source, tmp_path):  # noqa: F811
    """Both layouts of the cache, with blobs of one repository and blobs that repositories share."""
    snapshot = tmp_path / "hub" / "models--me--bert" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "hub" / blobs).mkdir(parents=True)
    for number, file in enumerate(sorted(source.iterdir())):
        blob = tmp_path / "hub" / blobs / f"{number:040x}"
        file.rename(blob)
        (snapshot / file.name).symlink_to(os.path.relpath(blob, snapshot))
    convert_checkpoint(str(snapshot), tmp_path / "out", {"alpha": 1.5})
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())
    assert (
        AutoTokenizer.from_pretrained(tmp_path / "out")("to be").input_ids
        == load_tokenizer(snapshot)("to be").input_ids
    )


@road("`convert` a checkpoint with its own code (`auto_map`)", "equal")
def test_code_comes_along_only_if_it_is_named(source, tmp_path):  # noqa: F811
    """The code of the tokenizer comes along with what it imports; that of the model does not, as no class of it is left."""
    for file, classes in (("config.json", ["AutoModel", "modeling_own.Own"]), ("tokenizer_config.json", None)):
        content = json.loads((source / file).read_text())
        content["auto_map"] = dict([classes]) if classes else {"AutoTokenizer": ["tokenization_own.Own", None]}
        (source / file).write_text(json.dumps(content))
    code = {
        "modeling_own.py": "",
        "tokenization_own.py": "from .own_words import x",
        "own_words.py": "",
        "stray.py": "",
    }
    for name, text in code.items():
        (source / name).write_text(text)
    convert_checkpoint(str(source), tmp_path / "sparse", {"alpha": 1.5})
    dense_checkpoint(str(tmp_path / "sparse"), tmp_path / "again")
    named = {"tokenization_own.py", "own_words.py"}
    assert {path.name for path in (tmp_path / "sparse").glob("*.py")} == {*named, "configuration_sparse_hopfield.py"}
    assert {path.name for path in (tmp_path / "again").glob("*.py")} == named


@road("`convert --overwrite` on a folder that holds other work", "refused")
def test_overwrite_replaces_only_what_we_wrote(source, tmp_path, capsys):  # noqa: F811
    """A dense model, a thesis beside a converted one, and a card edited by hand stay; what we wrote is replaced."""
    out, command = tmp_path / "out", ["convert", source, tmp_path / "out", "--overwrite"]
    tiny_model("llama").save_pretrained(out)
    before = contents(out)
    assert "did not write, or that have changed since: config.json, " in refused(capsys, *command)
    assert contents(out) == before
    for file in out.iterdir():
        file.unlink()
    assert main(list(map(str, command))) == 0  # empty
    assert main(list(map(str, command))) == 0  # ours
    (out / "thesis.tex").write_text("years of work")
    assert "thesis.tex" in refused(capsys, *command) and (out / "thesis.tex").exists()
    (out / "thesis.tex").unlink()
    with (out / "README.md").open("a") as card:
        card.write("my own words")
    assert "changed since: README.md" in refused(capsys, *command)
    again = [str(out), tmp_path / "dense again"]
    dense_checkpoint(*again)
    dense_checkpoint(*again, overwrite=True)
    assert "my own words" in (out / "README.md").read_text() and leftovers(tmp_path) == []


@road("`convert` to a folder that cannot be written", "refused")
def test_an_unwritable_output_is_refused_before_the_work(source, tmp_path, capsys):  # noqa: F811
    """The weights are damaged, yet the error is about the output: it comes before they are read."""
    (source / "model.safetensors").write_text("damaged")
    (tmp_path / "file").write_text("in the way")
    for output, words in (
        (tmp_path / "file" / "out", "cannot be written: Not a directory"),
        (tmp_path / "file", "is a file; it must be a directory"),
        ("/proc/out", "cannot be written"),
        (source, "is the source or contains it"),
        (source.parent, "is the source or contains it"),
    ):
        for command in (["convert"], ["calibrate", "--random"], ["convert", "--to_dense"]):
            assert words in refused(capsys, *command, source, output, "--overwrite")
    resumed = ["--text", tmp_path / "text.txt", "--resume_from", tmp_path / "file" / "state"]
    assert "there is no directory" in refused(capsys, "convert", source, tmp_path / "out", *resumed)
    assert (tmp_path / "file").read_text() == "in the way" and leftovers(tmp_path) == []


@road("`convert ./nosuch`, and the other commands and functions with a path that does not exist", "refused")
def test_a_missing_directory_is_called_so(tmp_path, capsys, monkeypatch):
    """All commands and functions that read a checkpoint, with paths that do not exist and with a file."""
    monkeypatch.chdir(tmp_path)
    for path in ("./nosuch", "/nope", "../nosuch", "a/b/c", "~/model", "no such", ""):
        for command in (["convert", path, "out"], ["calibrate", path, "out", "--random"], ["inspect", path]):
            assert refused(capsys, *command) == f"error: there is no directory {path!r}."
        for function in (load_model, load_tokenizer, lambda path: convert_checkpoint(path, "out")):
            with pytest.raises(FileNotFoundError, match="there is no directory"):
                function(path)
    for path in ("nosuch", "org/nmae"):  # a directory or a Hub id: who knows
        error = refused(capsys, "convert", path, "out")
        assert f"there is no directory {path!r} here, and as an id on the Hub it fails: " in error
    (tmp_path / "model.safetensors").write_text("")
    assert "is a file; it must be the directory" in refused(capsys, "inspect", "model.safetensors")
    (tmp_path / "empty").mkdir()
    assert "'empty' has no config.json, so it is not the directory of a model" in refused(capsys, "inspect", "empty")


@road("`convert` without a text to calibrate on", "warned")
def test_an_uncalibrated_result_is_called_so(source, tmp_path, capsys):  # noqa: F811
    """One warning says what to do, and the summary says what its figures are; with a text or alpha 1 there is no warning."""
    assert main(["convert", str(source), str(tmp_path / "out"), "--alpha", "1.5"]) == 0
    output, error = capsys.readouterr()
    (warning,) = (line for line in error.splitlines() if "calibrat" in line)
    assert (
        "not calibrated" in warning and "--text FILE" in warning and "fine-tune" in warning and "alpha 1.5" in warning
    )
    assert "Not calibrated." in output
    assert "Written, loaded again and compared with the model in memory" in output
    text = ["--text", str(tmp_path / "text.txt"), "--length", "16", "--batches", "1", "--refine_steps", "0"]
    assert main(["convert", str(source), str(tmp_path / "calibrated"), *text]) == 0
    assert main(["convert", str(source), str(tmp_path / "softmax"), "--alpha", "1"]) == 0
    assert "not calibrated" not in capsys.readouterr().err


@road("a converted checkpoint in plain transformers, without this package", "refused")
def test_without_the_package_nothing_runs_dense(tmp_path):
    """A process that cannot import the package loads by Auto class, pipeline and the class of the family: the guide's words."""
    to_sparse_hopfield(tiny_model("llama"), {"alpha": 1.5}).save_pretrained(tmp_path / "sparse")
    code = """
        import sys

        class Missing:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "hf_sparse_hopfield":
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        sys.meta_path.insert(0, Missing())
        from transformers import AutoModelForCausalLM, LlamaForCausalLM, pipeline

        path = sys.argv[1]
        for load in (
            lambda: AutoModelForCausalLM.from_pretrained(path),
            lambda: AutoModelForCausalLM.from_pretrained(path, trust_remote_code=False),
            lambda: pipeline("text-generation", path),
            lambda: AutoModelForCausalLM.from_pretrained(path, trust_remote_code=True),
            lambda: LlamaForCausalLM.from_pretrained(path),
        ):
            try:
                print("LOADED", type(load()).__name__)
            except Exception as error:
                print(type(error).__name__, " ".join(str(error).split()))
    """
    found = run_python(code, tmp_path / "sparse").splitlines()
    found = [
        line.rpartition("[y/N] ")[2] for line in found if line.rpartition("[y/N] ")[2].split(" ")[0].endswith("Error")
    ]
    assert len(found) == 5
    for line in found[:3]:
        assert line.startswith("ValueError") and "contains custom code" in line and "`trust_remote_code=True`" in line
    assert found[3].startswith("ImportError") and "pip install hf_sparse_hopfield" in found[3]
    assert found[4].startswith("ValueError") and 'attn_implementation="sparse_hopfield"` is not supported' in found[4]
    guide = (ROOT / "docs" / "checkpoints.md").read_text()
    for words in ("contains custom code", "an `ImportError` says `pip install hf_sparse_hopfield`"):
        assert words in guide


@road("`convert` interrupted by Ctrl-C while it writes", "refused")
def test_an_interrupted_conversion_leaves_what_was_there(tmp_path):
    """A real process gets SIGINT once its scratch directory appears; the old output stays, and nothing else is left."""
    config = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 512, "intermediate_size": 2048}
    LlamaForCausalLM(LlamaConfig(vocab_size=20000, **config)).save_pretrained(tmp_path / "dense")
    convert_checkpoint(str(tmp_path / "dense"), tmp_path / "out", {"alpha": 1.25}, verify=False)
    before = contents(tmp_path / "out")
    process = start("convert", tmp_path / "dense", tmp_path / "out", "--overwrite")
    while not list(tmp_path.glob(".out.partial-*/out/*")):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and error.splitlines()[-1] == "interrupted" and "Traceback" not in error
    assert contents(tmp_path / "out") == before and leftovers(tmp_path) == []


@road("two `convert` to the same output at once", "refused")
@pytest.mark.slow
def test_two_conversions_to_one_output(source, tmp_path):  # noqa: F811
    """Two real processes; one of them writes the output, the other one fails with a clean error."""
    processes = [start("convert", source, tmp_path / "out", "--alpha", alpha) for alpha in ("1.25", "1.75")]
    errors = [process.communicate()[1] for process in processes]
    codes = [process.returncode for process in processes]
    assert sorted(codes) == [0, 1]
    assert "already exists" in errors[codes.index(1)] and "Traceback" not in errors[codes.index(1)]
    alpha = (1.25, 1.75)[codes.index(0)]
    assert load_model(str(tmp_path / "out")).config.sparse_hopfield.alpha == alpha and leftovers(tmp_path) == []


@road("paths with spaces, line breaks, brackets and other letters", "equal")
@pytest.mark.parametrize("name", ["модель ✓\nit's", "model[/b]", ":smile: *?", "-dash"])
def test_names_that_surprise(name, source, tmp_path, capsys, monkeypatch):  # noqa: F811
    """Such names for the source and the output, where rich, shells and patterns would read more into them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    source.rename(tmp_path / name)
    arguments = ["convert", "--no_verify", "--alpha", "1.5", "--overwrite", "--", name, f"{name} sparse"]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert name.splitlines()[0] in captured.out
    assert type(load_model(f"./{name} sparse")).__name__ == "SparseHopfieldLlamaForCausalLM"
    assert leftovers(tmp_path) == []


@road("`convert ./model ./model/sparse`: the output inside the source", "equal")
def test_the_output_may_be_inside_the_source(source, caplog):  # noqa: F811
    """Convert twice; the second time the first output lies in the source and is not copied."""
    before = contents(source)
    assert main(["convert", str(source), str(source / "sparse")]) == 0
    assert main(["convert", str(source), str(source / "sparser"), "--alpha", "1.5"]) == 0
    assert not list((source / "sparser").glob("sparse*")) and "checkpoint: sparse/" in caplog.text
    assert {name: text for name, text in contents(source).items() if not name.startswith("spars")} == before


@road("weights that are a pickle, or lie outside of the folder", "refused")
def test_hostile_weights(source, tmp_path, capsys):  # noqa: F811
    """A pickle that would run a command, an index that names /etc/passwd, and a broken index; nothing runs."""
    (source / "model.safetensors").unlink()

    class Attack:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'attacked'}",)

    torch.save({"attack": Attack()}, source / "pytorch_model.bin")
    assert main(["convert", str(source), str(tmp_path / "out")]) == 1
    assert "Weights only load failed" in (error := capsys.readouterr().err) and "Traceback" not in error
    (source / "pytorch_model.bin").unlink()
    assert not (tmp_path / "attacked").exists()
    index = source / "model.safetensors.index.json"
    for outside in ("../../../../etc/passwd", "/etc/passwd", "weights/model.safetensors"):
        index.write_text(json.dumps({"metadata": {}, "weight_map": {"model.norm.weight": outside}}))
        assert f"names weights outside of its folder: {outside}" in refused(
            capsys, "convert", source, tmp_path / "out"
        )
    for broken in ("{broken", "[]", "{}", '{"weight_map": [1]}', '{"weight_map": {"a": 1}}'):
        index.write_text(broken)
        assert "is not an index of weights" in refused(capsys, "inspect", source)


@road("weights of an old checkpoint, in `pytorch_model.bin`", "equal")
def test_weights_in_a_bin_file(source, tmp_path):  # noqa: F811
    """The same weights as a pickle of tensors and as safetensors give the same sparse checkpoint."""
    convert_checkpoint(str(source), tmp_path / "expected", {"alpha": 1.5})
    torch.save(load_model(str(source)).state_dict(), source / "pytorch_model.bin")
    (source / "model.safetensors").unlink()
    convert_checkpoint(str(source), tmp_path / "out", {"alpha": 1.5})
    assert contents(tmp_path / "out")["model.safetensors"] == contents(tmp_path / "expected")["model.safetensors"]
    assert not (tmp_path / "out" / "pytorch_model.bin").exists()
