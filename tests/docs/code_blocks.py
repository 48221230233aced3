# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The code blocks of README and docs, and what a page takes for granted, made small."""

import re
from pathlib import Path


ROOT = Path(__file__).parents[2]
# The blocks of the reference are the docstrings' own, which have a test; recipes have one of their own.
PAGES = ["README.md", *(f"docs/{p.name}" for p in sorted((ROOT / "docs").glob("*.md")) if p.name != "reference.md")]

CHECKPOINT = """
import torch
from tests.roads.serving import make_checkpoint
torch.manual_seed(0)
"""
SETUP = {
    "docs/compare.md": """
from pathlib import Path
from hf_sparse_hopfield.demo.text import TEXT
from tests.comparison.conftest import save_both, word_tokenizer
from tests.tiny_models import tiny_model
Path("wikitext.test.txt").write_text(TEXT)
model = tiny_model("llama", vocab_size=len(word_tokenizer()))
for made, name in zip(save_both(Path(), model, word_tokenizer()), ("smollm2", "smollm2-sparse")):
    Path(made).rename(name)
""",
    "docs/serving.md": f"{CHECKPOINT}make_checkpoint('./my-sparse-model')",
    "docs/kernels.md": """
from transformers import utils
from transformers.utils import import_utils
if not import_utils.is_kernels_available():  # transformers accepts certain releases of kernels only
    import_utils.is_kernels_available = utils.is_kernels_available = lambda *_: True
import os
from hf_sparse_hopfield.hub.kernels import build_kernel
from tests.tiny_models import padded, tiny_model
if not os.path.exists("kernel"):
    build_kernel("kernel")
    tiny_model("llama").save_pretrained("org/model")
os.environ["LOCAL_KERNELS"] = "org/sparse-hopfield=./kernel"
model, batches = tiny_model("llama"), [padded("llama", left=True)] * 2
config = model.config
""",
    # in each of two processes
    "docs/parallel.md": """
import os
import torch
import torch.distributed as dist
from transformers import LlamaConfig, Trainer
from transformers import TrainingArguments as Arguments
from hf_sparse_hopfield import to_sparse_hopfield
from tests.tiny_models import tiny_model
from tests.training.run_cases import allow_fsdp_on_cpus
allow_fsdp_on_cpus()
dist.init_process_group("gloo")
group, processes = dist.group.WORLD, 2
rows = torch.randint(3, 50, (4, 16), generator=torch.Generator().manual_seed(0))
batches = [{"input_ids": rows, "labels": rows}]
dataset = [{"input_ids": row, "labels": row} for row in rows]
def TrainingArguments(*args, **options):
    options["fsdp_config"]["transformer_layer_cls_to_wrap"] = ["LlamaDecoderLayer"]
    return Arguments(*args, **options, use_cpu=True, report_to="none", save_strategy="no")
model = to_sparse_hopfield(tiny_model("llama"), {"alpha": 1.5})
optimizer = torch.optim.SGD(model.parameters())
if dist.get_rank() == 0:
    model.save_pretrained("path/to/sparse")
dist.barrier()
""",
}


def blocks(page: str, language: str) -> list[str]:
    """The code of a page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
