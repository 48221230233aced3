# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Pushing and loading, over HTTP: real clients in processes of their own, and a server that speaks as the Hub does."""

import hashlib
import re
import shlex
import sys
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from ..roads.table import road
from .conftest import Failed
from .server import READ_TOKEN, File


PNG = b"\x89PNG"
NEEDED = {"README.md", "config.json", "configuration_sparse_hopfield.py", "model.safetensors"}


def card_of(hub, repo):
    return ModelCard(hub.repositories[repo].files["README.md"].content.decode())


def hashes(folder):
    """The files of a checkpoint; the list of what was written is hidden, and not one of them."""
    files = [path for path in Path(folder).iterdir() if path.is_file() and not path.name.startswith(".")]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def retry_command(message):
    """The command that an error tells to run."""
    return shlex.split(re.search(r"^  (hf upload .*)$", message, re.MULTILINE).group(1))


def run_retry(worker, message):
    program, *arguments = retry_command(message)
    done = worker.shell(str(Path(sys.executable).parent / program), *arguments)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def dense(worker, tmp_path_factory):
    """A dense checkpoint with a card."""
    folder = tmp_path_factory.mktemp("source") / "dense"
    worker.call("save_dense", "llama", str(folder))
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    return folder


@pytest.fixture(scope="module")
def pushed(hub, worker, dense, tmp_path_factory):
    """Models pushed in all ways: repository to Auto class and what the model gave in the process that pushed it."""
    folder = tmp_path_factory.mktemp("pushed")
    run_retry(worker, f"  hf upload me/base {dense} .")
    models = {
        "me/bert": "AutoModelForMaskedLM",
        "me/llama": "AutoModelForCausalLM",
        "me/trained": "AutoModelForMaskedLM",
        "me/bags": "AutoModelForSequenceClassification",
        "me/series": "AutoModelForTimeSeriesPrediction",
    }
    expected = {repo: str(folder / f"{repo[3:]}.pt") for repo in models}
    settings = {"alpha": 1.5, "learn_beta": True, "overrides": {"1": {"beta": 2.0}}}
    options = {"base_model": "me/base", "metrics": {"accuracy": 0.75}, "dataset": "me/data", "tags": ["tiny"]}
    worker.call("push", "bert", "me/bert", expected["me/bert"], settings, counted=True, **options)
    worker.call("push", "llama", "llama", expected["me/llama"], {"steps": 2}, by_name=True, private=True)
    worker.call("train", str(folder / "output"), "me/trained", expected["me/trained"])
    worker.call("push_own", "multiple_instance", "me/bags", expected["me/bags"])
    worker.call("push_own", "crossformer", "me/series", expected["me/series"])
    return {repo: (auto_class, expected[repo]) for repo, auto_class in models.items()}


def test_fresh_processes_load_by_id(pushed, make_worker):
    with_plugin, with_remote_code = make_worker(), make_worker()
    with_plugin.start("load", pushed, plugin=True)
    with_remote_code.start("load", pushed, plugin=False)
    for worker in (with_plugin, with_remote_code):
        found = worker.finish()
        names = {repo: name for repo, (name, _, _) in found.items()}
        assert names == {
            "me/bert": "SparseHopfieldBertForMaskedLM",
            "me/llama": "SparseHopfieldLlamaForCausalLM",
            "me/trained": "SparseHopfieldBertForMaskedLM",
            "me/bags": "SparseHopfieldForMultipleInstanceClassification",
            "me/series": "SparseHopfieldCrossformerForPrediction",
        }
        assert {repo: equal for repo, (_, equal, _) in found.items()} == dict.fromkeys(pushed, True)
    assert found["me/bert"][2], "loading with neither plugin nor trust_remote_code must fail"


def test_what_is_pushed(hub, pushed):
    for repo in pushed:
        assert NEEDED <= hub.repositories[repo].files.keys(), repo
    assert hub.repositories["me/llama"].private and not hub.repositories["me/bert"].private
    files = hub.repositories["me/bert"].files
    assert files["support.png"].content.startswith(PNG) and files["model.safetensors"].large
    assert "support.png" not in hub.repositories["me/llama"].files
    assert hub.repositories["me/bags"].files["support.png"].content.startswith(PNG)


def test_card_of_a_converted_model(hub, pushed):
    card = card_of(hub, "me/bert")
    assert card.data.base_model == "me/base"
    assert card.data.license == "apache-2.0"  # the server was asked for that of the base model
    assert card.data.library_name == "transformers" and card.data.pipeline_tag == "fill-mask"
    assert card.data.tags == ["sparse-hopfield", "sparse-attention", "bert", "tiny"]
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value, result.dataset_name) == ("accuracy", 0.75, "me/data")
    assert '.from_pretrained("me/bert")' in card.text
    assert 'AutoModelForMaskedLM.from_pretrained("me/bert", trust_remote_code=True)' in card.text
    assert re.search(r"layer\.0\.attention\.self \| 4 \| 1\.5 \| 1 \| 1 \| [\d.]+% \|", card.text)
    assert re.search(r"layer\.1\.attention\.self \| 4 \| 1\.5 \| 2 \| 1 \| [\d.]+% \|", card.text)
    assert "](support.png)" in card.text


def test_card_of_a_model_sparse_by_name(hub, pushed):
    card = card_of(hub, "me/llama")
    assert card.data.pipeline_tag == "text-generation" and card.data.base_model is None
    assert "`SparseHopfieldLlamaForCausalLM`" in card.text and "| 2 | 1 | 2 |" in card.text
    assert "Not counted" in card.text and "](support.png)" not in card.text


def test_cards_of_our_own_models(hub, pushed):
    card = card_of(hub, "me/bags")
    assert card.data.pipeline_tag is None  # bags are no text, whatever Auto class knows them
    assert "sparse_hopfield_multiple_instance" in card.data.tags
    assert re.search(r"\| aggregation\.hopfield \| 2 \| 1\.5 \| 1 \| 1 \| [\d.]+% \|", card.text)
    card = card_of(hub, "me/series")
    assert card.data.pipeline_tag == "time-series-forecasting" and "](support.png)" in card.text
    assert 'AutoModelForTimeSeriesPrediction.from_pretrained("me/series")' in card.text


def test_the_trainer_pushes_card_and_remote_code(hub, pushed):
    repository = hub.repositories["me/trained"]
    assert repository.messages[0] == "initial commit" and repository.messages[-1] == "End of training"
    on_the_way = next(files for files in repository.commits.values() if "model.safetensors" in files)
    assert {"config.json", "configuration_sparse_hopfield.py"} <= on_the_way.keys()
    assert not any(name.startswith("checkpoint-") for name in repository.files)
    card = card_of(hub, "me/trained")
    assert {"generated_from_trainer", "sparse-hopfield"} <= set(card.data.tags)
    assert card.data.base_model == "me/base" and card.data.license == "apache-2.0"
    assert "training_steps: 2" in card.text and re.search(r"- Loss: \d", card.text)  # what the Trainer wrote
    assert re.search(r"layer\.0\.attention\.self \| 4 \| 1\.5 \| [\d.to ]+ \| 1 \| [\d.]+% \|", card.text)
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value, result.dataset_type) == ("accuracy", 0.5, "me/data")
    assert '.from_pretrained("me/trained")' in card.text
    assert repository.files["support.png"].content.startswith(PNG)


def test_a_dense_model_is_pushed_as_before(hub, worker, tmp_path):
    worker.call("train", str(tmp_path), "me/dense", dense=True)
    assert "sparse" not in hub.repositories["me/dense"].files["README.md"].content.decode().lower()


def test_a_card_written_by_hand_stays(hub, worker, tmp_path):
    worker.call("push", "bert", "me/edited", str(tmp_path / "a"), {"alpha": 1.5})
    repository = hub.repositories["me/edited"]
    text = repository.files["README.md"].content.decode().replace("---\n\n", "---\n\nMy own words.\n", 1)
    text = text.replace("---\n", "---\nlicense: mit\n", 1) + "\nAnd a last one.\n"
    repository.commit("main", {**repository.files, "README.md": File(text.encode(), False)}, "by hand")
    worker.call("push", "bert", "me/edited", str(tmp_path / "b"), {"alpha": 1.25}, revision="next")
    card = ModelCard(repository.commits[repository.branches["next"]]["README.md"].content.decode())
    assert card.data.license == "mit" and card.data.tags.count("sparse-hopfield") == 1
    assert "My own words." in card.text and card.text.rstrip().endswith("And a last one.")
    assert "| 1.25 |" in card.text and "| 1.5 |" not in card.text and card.text.count("## Settings") == 1
    assert "| 1.5 |" in card_of(hub, "me/edited").text  # the main branch is as it was


def test_save_pretrained_can_push(hub, worker, tmp_path):
    worker.call("save_and_push", "bert", "me/saved", str(tmp_path / "saved"))
    assert NEEDED <= hub.repositories["me/saved"].files.keys()
    assert "## Settings" in card_of(hub, "me/saved").text
    assert {path.name for path in (tmp_path / "saved").iterdir()} >= NEEDED


@road("push a folder in which secrets and logs lie beside the model", "equal")
def test_only_files_of_the_checkpoint_are_pushed(hub, worker, dense, tmp_path):
    """`convert --push_to_hub`, `save_pretrained(push_to_hub=True)` and the command of a failed push, over HTTP."""
    secrets = ("secrets.txt", "service-account.json", "train.log", ".env")
    for name in secrets:
        (dense / name).write_text("secret")
    arguments = ["convert", str(dense), str(tmp_path / "out"), "--push_to_hub", "me/known", "--json"]
    assert worker.call("run_command", *arguments) == 0, worker.output
    for name in secrets:
        (dense / name).unlink()
    uploaded = hub.repositories["me/known"].files.keys() - {".gitattributes"}
    assert uploaded == hashes(tmp_path / "out").keys() and not uploaded & {*secrets}
    (tmp_path / "saved" / "runs").mkdir(parents=True)
    for name in (*secrets, "runs/events"):
        (tmp_path / "saved" / name).write_text("secret")
    hub.fail = lambda step: 403 if step == "commit" else None
    with pytest.raises(Failed) as failed:
        worker.call("save_and_push", "bert", "me/beside", str(tmp_path / "saved"))
    hub.fail = lambda step: None
    run_retry(worker, failed.value.message)
    assert hub.repositories["me/beside"].files.keys() == {*NEEDED, ".gitattributes"}
    hub.repositories.pop("me/beside")
    worker.call("save_and_push", "bert", "me/beside", str(tmp_path / "saved"))
    assert hub.repositories["me/beside"].files.keys() == {*NEEDED, ".gitattributes"}
    (tmp_path / "saved" / "tokenizer.json").symlink_to(tmp_path / "saved" / ".." / "private")
    (tmp_path / "private").write_text("secret")
    with pytest.raises(Failed, match="tokenizer.json -> .*private"):
        worker.call("save_and_push", "bert", "me/beside", str(tmp_path / "saved"))


def test_the_command_line_pushes_and_can_be_retried(hub, worker, dense, tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat and the dog lay by the door. " * 40)
    arguments = ["convert", str(dense), str(tmp_path / "out"), "--alpha", "1.5", "--text", str(tmp_path / "text.txt")]
    arguments += ["--length", "16", "--batches", "2", "--push_to_hub", "me/converted", "--json"]
    assert worker.call("run_command", *arguments, environment={"HF_TOKEN": "hf_wrong"}) == 1
    assert "hf auth login" in worker.output and retry_command(worker.output)[2:4] == ["me/converted", arguments[2]]
    arguments, worker_token = [*arguments, "--overwrite"], {"HF_TOKEN": worker.environment["HF_TOKEN"]}
    hub.fail = lambda step: 403 if step == "upload" else None  # as storage does once a signed address has expired
    assert worker.call("run_command", *arguments, environment=worker_token) == 1
    error = worker.output
    assert "Traceback" not in error and "me/converted" in error and "403" in error
    assert hub.repositories["me/converted"].messages == ["initial commit"]  # all or nothing
    before = hashes(tmp_path / "out")
    assert NEEDED | {"calibration.json", "support.png", "tokenizer.json"} <= before.keys()
    hub.fail = lambda step: None
    run_retry(worker, error)
    files = hub.repositories["me/converted"].files
    assert {name: hashlib.sha256(files[name].content).hexdigest() for name in before} == before
    card = card_of(hub, "me/converted")
    assert card.data.license == "apache-2.0" and card.data.pipeline_tag == "text-generation"
    assert '.from_pretrained("me/converted")' in card.text and "sparse loss" in card.text
    assert str(tmp_path) not in card.text and "convert dense out" in card.text


def test_a_lost_connection_at_the_commit(hub, worker, make_worker, tmp_path):
    hub.fail = lambda step: "drop" if step == "commit" else None
    with pytest.raises(Failed) as failed:
        worker.call("push", "bert", "me/lost", str(tmp_path / "expected"), {"alpha": 1.5})
    assert failed.value.kind == "PushError" and "Nothing is lost" in failed.value.message
    assert hub.repositories["me/lost"].messages == ["initial commit"]
    folder = retry_command(failed.value.message)[3]
    before = hashes(folder)
    assert NEEDED <= before.keys()
    hub.fail, uploads = lambda step: None, hub.steps.count("upload")
    run_retry(worker, failed.value.message)
    assert hub.steps.count("upload") == uploads  # what the storage has is not sent again
    assert hashes(folder) == before
    files = hub.repositories["me/lost"].files
    assert {name: hashlib.sha256(files[name].content).hexdigest() for name in before} == before


def test_a_short_interruption_of_an_upload_does_not_matter(hub, worker, tmp_path):
    interruptions = iter(["drop"])
    hub.fail = lambda step: next(interruptions, None) if step == "upload" else None
    worker.call("push", "bert", "me/interrupted", str(tmp_path / "expected"), {"alpha": 1.75})
    assert NEEDED <= hub.repositories["me/interrupted"].files.keys()


def test_the_trainer_can_push_again(hub, worker, tmp_path):
    failures = iter(["drop"])
    hub.fail = lambda step: next(failures, None) if step == "commit" else None
    worker.call("train", str(tmp_path / "output"), "me/again", hub_strategy="end")
    assert "pushing to 'me/again' failed" in worker.output
    assert f"hf upload me/again {tmp_path / 'output'} . --exclude 'checkpoint-*'" in worker.output
    assert hub.repositories["me/again"].messages[-1] == "End of training"
    assert NEEDED <= {path.name for path in (tmp_path / "output").iterdir()}


def test_a_push_that_fails_during_training_is_told(hub, worker, tmp_path):
    failures = iter(["drop"])
    hub.fail = lambda step: next(failures, None) if step == "commit" else None
    worker.call("train", str(tmp_path / "output"), "me/background")
    assert "checkpoint-1 to 'me/background' in the background failed" in worker.output
    assert hub.repositories["me/background"].messages[-1] == "End of training"


@pytest.mark.parametrize(
    ("repo", "token", "words"),
    [
        ("me/wrong", "hf_wrong", ["401", "hf auth login", "HF_TOKEN"]),
        ("me/readonly", READ_TOKEN, ["403", "write permission for 'me'"]),
        ("somebody/else", None, ["403", "write permission for 'somebody'", "another name"]),
    ],
)
def test_who_may_not_write_is_told(hub, worker, tmp_path, repo, token, words):
    with pytest.raises(Failed) as failed:
        worker.call("push", "bert", repo, str(tmp_path / "expected"), **({} if token is None else {"token": token}))
    assert failed.value.kind == "PushError"
    for word in [repo, "nothing was written yet", *words]:
        assert word in failed.value.message
    assert repo not in hub.repositories
    assert not list(Path(worker.environment["TMPDIR"]).glob(f"{repo.split('/')[1]}-*"))


def test_the_trainer_tells_before_it_trains(worker, tmp_path):
    with pytest.raises(Failed) as failed:
        worker.call("train", str(tmp_path / "output"), "me/trainer", hub_token=READ_TOKEN)
    assert failed.value.kind == "PushError" and "write permission for 'me'" in failed.value.message


@pytest.mark.slow
def test_a_lost_connection_at_an_upload(hub, worker, tmp_path):
    """The client tries for 23 seconds before it gives up."""
    hub.fail = lambda step: "drop" if step == "upload" else None
    with pytest.raises(Failed) as failed:
        worker.call("push", "bert", "me/cut", str(tmp_path / "expected"), {"alpha": 1.9})
    assert failed.value.kind == "PushError" and hub.repositories["me/cut"].messages == ["initial commit"]
    hub.fail = lambda step: None
    run_retry(worker, failed.value.message)
    assert NEEDED <= hub.repositories["me/cut"].files.keys()


@pytest.mark.slow
def test_an_example_script_pushes(hub, worker, tmp_path):
    script = Path(__file__).parents[2] / "examples" / "run_text_classification.py"
    arguments = ["--smoke", "--output_dir", str(tmp_path / "output"), "--push_to_hub", "--hub_model_id", "me/example"]
    done = worker.shell(sys.executable, str(script), *arguments)
    assert done.returncode == 0, done.stderr[-2000:]
    assert NEEDED <= hub.repositories["me/example"].files.keys()
    card = card_of(hub, "me/example")
    assert "sparse-hopfield" in card.data.tags and card.data.pipeline_tag == "text-classification"
    assert "## Settings" in card.text and "](support.png)" in card.text
