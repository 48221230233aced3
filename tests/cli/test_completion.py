# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import shutil
import subprocess

import pytest

from hf_sparse_hopfield.cli import main


pytest.importorskip("shtab", reason="completion needs the extra [cli]")

# What a shell does when the Tab key is pressed after {line}.
PRESS_TAB = {
    "bash": """
eval "$(< script)"
COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
$(complete -p hf-sparse-hopfield | sed 's/.*-F \\([^ ]*\\) .*/\\1/') hf-sparse-hopfield "${{COMP_WORDS[COMP_CWORD]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
""",
    # zsh completes in its line editor only, which needs a terminal; the last line waits for the completed line
    "zsh": """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PROMPT=""; autoload -U compinit; compinit -u -D; eval "$(< script)"; echo rea""dy'
zpty -r -m shell line '*ready*'
zpty -w -n shell '{line}'$'\\t'
zpty -r -m shell line '*{expected}*' && print -r -- "$line"
""",
}


@pytest.mark.parametrize("shell", PRESS_TAB)
def test_the_tab_key_completes(shell, tmp_path, capsys):
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    assert main(["completion", shell]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    (tmp_path / "models").mkdir()
    for line, expected in (
        ("hf-sparse-hopfield ca", "calibrate"),
        ("hf-sparse-hopfield convert --ta", "--target_support"),
        ("hf-sparse-hopfield convert --objective su", "support"),
        ("hf-sparse-hopfield inspect m", "models"),
    ):
        code = PRESS_TAB[shell].format(line=line, expected=expected)
        done = subprocess.run(
            [shell, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=20
        )
        assert expected in done.stdout
