# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import ast
import json
from pathlib import Path

import pytest
import transformers
from transformers import utils
from transformers.utils import hub

from hf_sparse_hopfield.checkpoints.known_files import (
    companion_files,
    known_files,
    named_code,
    processor_files,
    refuse_links,
    unknown_files,
)


def make(directory, *names, **texts):
    for name in (*names, *texts):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(texts.get(name, ""))


def names(files):
    return {file.as_posix() for file in files}


def vocabularies():
    """The names of `vocab_files_names` of all tokenizers of transformers, from their sources."""
    found = set()
    for path in Path(transformers.__file__).parent.rglob("tokenization_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            targets = [target.id for target in getattr(node, "targets", []) if isinstance(target, ast.Name)]
            if "VOCAB_FILES_NAMES" in targets and isinstance(node.value, ast.Dict):
                found |= {value.value for value in node.value.values if isinstance(value, ast.Constant)}
    return found


def test_every_file_that_transformers_saves_is_known(tmp_path):
    """A release that saves under a new name fails here."""
    constants = {
        *(utils.FEATURE_EXTRACTOR_NAME, utils.IMAGE_PROCESSOR_NAME, utils.VIDEO_PROCESSOR_NAME, utils.PROCESSOR_NAME),
        *(utils.AUDIO_TOKENIZER_NAME, hub.LEGACY_PROCESSOR_CHAT_TEMPLATE_FILE, hub.CHAT_TEMPLATE_FILE),
        f"{hub.CHAT_TEMPLATE_DIR}/tool.jinja",
        *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tiktoken.model", "tekken.json"),
        *("tokenizer.4.0.0.json", "tokenizer.model.v3", "question_encoder_tokenizer/vocab.txt"),
        *("speaker_embeddings_path.json", "speaker_embeddings/v2/en_speaker_1_fine_prompt.npy"),
    }
    assert len(vocabularies()) > 15
    expected = constants | vocabularies()
    make(tmp_path, *expected)
    assert names(processor_files(tmp_path)) == expected
    model = {
        *(utils.CONFIG_NAME, utils.GENERATION_CONFIG_NAME, utils.WEIGHTS_NAME, utils.WEIGHTS_INDEX_NAME),
        *(utils.SAFE_WEIGHTS_NAME, utils.SAFE_WEIGHTS_INDEX_NAME, "model-00001-of-00002.safetensors", "README.md"),
        *("model.fp16.safetensors", "model.safetensors.index.fp16.json", "adapter_model.safetensors"),
        *("calibration.json", "support.png", "configuration_sparse_hopfield.py"),
        *(
            "LICENSE",
            "LICENSE.txt",
            "LICENSE-APACHE",
            "LICENSE.Apache-2.0",
            "NOTICE.md",
            "USE_POLICY.md",
            "license.md",
        ),
    }
    make(tmp_path, *model, **{"config.json": '{"auto_map": {"AutoConfig": "configuration_sparse_hopfield.X"}}'})
    assert names(known_files(tmp_path)) == expected | model and unknown_files(tmp_path, known_files(tmp_path)) == []


@pytest.mark.parametrize(
    "name",
    [
        *(
            "secrets.txt",
            "service-account.json",
            "train.log",
            "token.txt",
            "hf_token",
            "my_vocab.txt",
            "notes.md",
            ".env",
        ),
        *("optimizer.pt", "training_args.bin", "data.safetensors", "model.pkl", "license_keys.csv", "runs/events"),
        *(
            "additional_chat_templates/key.txt",
            "speaker_embeddings/key.txt",
            "key_tokenizer/id_rsa",
            "config.json.bak",
        ),
        *(
            "tokenizer.json~",
            "1_Pooling/config.json",
            "code.py",
            "model.safetensors/inside",
            "x_tokenizer/a/vocab.txt",
        ),
    ],
)
def test_anything_else_is_not(name, tmp_path):
    make(tmp_path, "config.json", name)
    assert names(known_files(tmp_path)) == {"config.json"}
    assert bool(unknown_files(tmp_path, known_files(tmp_path))) is not name.startswith(".")


def test_modules_of_sentence_transformers(tmp_path):
    modules = [
        {"path": path, "type": "X"} for path in ("", "1_Pooling", "2_Dense", "../beside", "..", "/etc", "missing")
    ]
    modules += [3, {"path": 4}, {"type": "own_module.Own"}, {"type": "sentence_transformers.models.Normalize"}]
    kept = {
        *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "own_module.py"),
        *("1_Pooling/config.json", "2_Dense/model.safetensors", "2_Dense/config.json", "2_Dense/vocab.txt"),
    }
    make(tmp_path / "model", *kept, "2_Dense/secret.json", "3_Dense/config.json", "../beside/config.json")
    (tmp_path / "model" / "modules.json").write_text(json.dumps(modules))
    assert names(known_files(tmp_path / "model")) == kept
    assert names(companion_files(tmp_path / "model")) == kept - {"own_module.py"}
    assert unknown_files(tmp_path / "model", known_files(tmp_path / "model")) == ["2_Dense/secret.json", "3_Dense/"]
    (tmp_path / "model" / "modules.json").write_text("{broken")
    assert names(companion_files(tmp_path / "model")) < kept


def test_code_that_configurations_name(tmp_path):
    maps = {
        "config.json": {"AutoConfig": "a.A", "AutoModel": "other/repository--b.B"},
        "tokenizer_config.json": {"AutoTokenizer": ["c.C", None]},
        "processor_config.json": ["d.D", "../e.E", 5, "missing.M"],
        "stray.json": {"AutoModel": "f.F"},
    }
    texts = {name: json.dumps({"auto_map": value}) for name, value in maps.items()}
    make(tmp_path, *(f"{module}.py" for module in "bdef"), **texts)
    make(
        tmp_path, **{"a.py": "from .g import x\nfrom .a import y\nfrom ..secret import z", "g.py": "from .h import x"}
    )
    make(tmp_path, "c.py", "h.py", "i.py", **{".secret.py": ""})
    assert names(named_code(tmp_path, tmp_path)) == {"a.py", "c.py", "d.py", "g.py", "h.py"}


def test_links(tmp_path):
    directory = tmp_path / "model"
    make(directory, "tokenizer.json")
    make(tmp_path, "private", f"blobs/{'a' * 40}", f"blobs/ab/{'b' * 64}", "blobs/key")
    links = {"a": "tokenizer.json", "b": f"../blobs/{'a' * 40}", "c": f"../blobs/ab/{'b' * 64}"}
    wrong = {"d": "../private", "e": "../blobs/key", "f": "/etc/passwd"}
    for name, target in {**links, **wrong}.items():
        (directory / name).symlink_to(target)
    refuse_links(directory, map(Path, links))
    (tmp_path / "elsewhere").symlink_to(directory)
    refuse_links(tmp_path / "elsewhere", map(Path, links))
    for name in wrong:
        with pytest.raises(ValueError, match=f"links to files elsewhere: {name} -> "):
            refuse_links(directory, [Path(name)])
