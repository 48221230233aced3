# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What the processes of `test_context.py` do: `context_cases.py FOLDER CASE ...`, started by torchrun.

Each case compares context parallelism with one process, within the same process, and returns numbers or messages. The results
of process r go to `FOLDER/r.json`.
"""

import datetime
import json
import random
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import FullyShardedDataParallelPlugin, ParallelismConfig
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from transformers import Trainer, TrainingArguments

from hf_sparse_hopfield import SparseHopfieldConfig, retrieve, to_sparse_hopfield
from hf_sparse_hopfield.observation import OwnSettings, observed
from hf_sparse_hopfield.parallel import context_parallel, retrieve_context_parallel, sharded_keys
from hf_sparse_hopfield.parallel.context import sharded_positions
from tests.tiny_models import VOCABULARY, tiny_model
from tests.training.run_cases import allow_fsdp_on_cpus


ALPHAS = (1.0, 1.02, 1.2, 1.5, 1.75, 2.0)
LENGTH = 19
LEARNED = {"alpha": 1.5, "learn_alpha": True, "learn_beta": True}


def rank_and_size() -> tuple[int, int]:
    return dist.get_rank(), dist.get_world_size()


# ---- Tensors ----


class Shards:
    """A random problem and the part of this process. The same seed gives the same problem in all processes."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        rank, size = rank_and_size()
        choose, draw = random.Random(seed), torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=draw, dtype=torch.float64).to(dtype)

        def parts(total: int) -> list[int]:  # uneven ones, some of them empty
            cuts = sorted(choose.randint(0, total) for _ in range(size - 1))
            return [stop - start for start, stop in zip([0, *cuts], [*cuts, total], strict=True)]

        def setting(values: tuple[float, ...]) -> float | Tensor:
            kind, shape = choose.choice(("number", "number", "heads", "rows")), (batch, heads, queries, 1)
            if kind == "number":
                return choose.choice(values)
            return (
                torch.tensor(choose.choices(values, k=heads if kind == "heads" else batch * heads * queries))
                .to(dtype)
                .reshape(heads if kind == "heads" else shape)
            )

        batch, kv_heads, groups = choose.choice((1, 2)), choose.choice((1, 2)), choose.choice((1, 2, 3))
        heads, width, value_width = kv_heads * groups, choose.choice((4, 8)), choose.choice((4, 6))
        queries = choose.choice((2, 5, 17, 40))
        of_queries = of_keys = parts(queries)
        keys, is_self = queries, choose.random() < 0.6
        if not is_self:
            keys = choose.choice((1, 7, 33, 150))
            of_keys = parts(keys)
        self.query = normal(batch, heads, queries, width) * choose.choice((1, 3))
        self.key, self.value = normal(batch, kv_heads, keys, width), normal(batch, kv_heads, keys, value_width)
        self.grad = normal(batch, heads, queries, value_width)
        self.alpha, self.beta = setting(ALPHAS), setting((0.5, 1.0, 2.5))
        self.options: dict = {"steps": choose.choice((1, 1, 1, 3)), "softcap": choose.choice((None, None, 2.0))}
        if self.options["steps"] > 1:
            self.options["tolerance"] = choose.choice((0.0, 0.3))
        if choose.random() < 0.5:
            self.options |= {"is_causal": True, "sliding_window": choose.choice((None, 1, 6))}
        self.mask = self.bias = self.sinks = None
        if choose.random() < 0.5:  # at the lower rate, rows and whole parts see nothing
            chance = choose.choice((0.05, 0.6))
            shape = (choose.choice((1, batch)), choose.choice((1, heads)), choose.choice((1, queries)), keys)
            self.mask = torch.rand(shape, generator=draw) < chance
        if choose.random() < 0.3:
            self.bias = normal(1, choose.choice((1, heads)), queries, keys)
        if choose.random() < 0.3:
            self.sinks = normal(heads)
        ordered = is_self and choose.random() < 0.5
        permutation = torch.tensor(choose.sample(range(queries), queries))
        self.queries_in_order = permutation if ordered else torch.arange(queries)
        keys_in_order = permutation if ordered else torch.arange(keys)
        self.own_queries = self.queries_in_order.split(of_queries)[rank]
        self.own_keys = keys_in_order.split(of_keys)[rank]
        self.positions = self.own_queries if ordered else None

    def rows(self, setting: float | Tensor | None) -> float | Tensor | None:
        return setting[:, :, self.own_queries] if isinstance(setting, Tensor) and setting.ndim == 4 else setting

    def scores(self, tensor: Tensor | None) -> Tensor | None:
        """All queries, in the order of the processes, and the keys of this one."""
        if tensor is None:
            return None
        tensor = tensor if tensor.shape[2] == 1 else tensor[:, :, self.queries_in_order]
        return tensor[..., self.own_keys]

    def whole(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """Output and gradients in one process, cut to this one's part."""
        names = ("query", "key", "value", "alpha", "beta", "bias", "sinks")
        given = {name: leaf(getattr(self, name), dtype) for name in names}
        output = retrieve(**given, mask=self.mask, **self.options, backend="reference")
        output.backward(self.grad.to(dtype))
        gradients = {name: x.grad for name, x in given.items() if isinstance(x, Tensor)}
        cut = {"query": self.rows, "alpha": self.rows, "beta": self.rows, "bias": self.scores}
        for name in gradients:
            if name in cut:
                gradients[name] = cut[name](gradients[name])
            elif name in ("key", "value"):
                gradients[name] = gradients[name][:, :, self.own_keys]
        return {"output": output.detach()[:, :, self.own_queries], **gradients}

    def sharded(self) -> dict[str, Tensor]:
        """Output and gradients in several processes."""
        given = {
            "query": self.query[:, :, self.own_queries],
            "key": self.key[:, :, self.own_keys],
            "value": self.value[:, :, self.own_keys],
            "alpha": self.rows(self.alpha),
            "beta": self.rows(self.beta),
            "bias": self.scores(self.bias),
            "sinks": self.sinks,
        }
        given = {name: leaf(value) for name, value in given.items()}
        output = retrieve_context_parallel(
            **given, mask=self.scores(self.mask), positions=self.positions, **self.options
        )
        output.backward(self.grad[:, :, self.own_queries])
        gradients = {name: x.grad for name, x in given.items() if isinstance(x, Tensor)}
        for gradient in gradients.values():
            if gradient.ndim == 1:  # shared by all processes
                dist.all_reduce(gradient)
        return {"output": output.detach(), **gradients}


def leaf(value, dtype: torch.dtype | None = None):
    return value.detach().to(dtype or value.dtype).clone().requires_grad_() if isinstance(value, Tensor) else value


def distance(left: Tensor, right: Tensor) -> float:
    """Largest difference, relative to the largest entry or 1."""
    if not right.numel():
        return 0.0
    left, right = left.double(), right.double()
    return ((left - right).abs().max() / right.abs().max().clamp_min(1)).nan_to_num(torch.inf).item()


def compare_tensors(seeds: range, dtype: torch.dtype) -> dict[str, float]:
    """Largest distances over random problems, from float64 in one process; and how far one process in `dtype` is from it."""
    worst: dict[str, float] = {}
    for seed in seeds:
        shards = Shards(seed, dtype)
        truth, got = shards.whole(torch.float64), shards.sharded()
        alone = shards.whole(dtype)
        assert truth.keys() == got.keys() == alone.keys()
        for name in truth:
            # one process rounds as well: what it is away from the truth is no fault of the others
            far = distance(got[name], truth[name]) - 2 * distance(alone[name], truth[name])
            worst[name] = max(worst.get(name, 0.0), far)
    return worst


def double() -> dict[str, float]:
    return compare_tensors(range(20), torch.float64)


def single() -> dict[str, float]:
    return compare_tensors(range(100, 112), torch.float32)


def bfloat16() -> dict[str, float]:
    return compare_tensors(range(200, 204), torch.bfloat16)


def many() -> dict[str, float]:
    return compare_tensors(range(300, 400), torch.float64)


def blocks() -> dict[str, float]:
    """With room for a few scores only."""
    limit, sharded_keys._BLOCK_SCORES = sharded_keys._BLOCK_SCORES, 256
    solve, sizes = sharded_keys._solve, []
    try:
        sharded_keys._solve = lambda call, scores, eps: sizes.append(scores.numel()) or solve(call, scores, eps)
        worst = compare_tensors(range(500, 506), torch.float64)
    finally:
        sharded_keys._BLOCK_SCORES, sharded_keys._solve = limit, solve
    return {**worst, "largest block": max(sizes), "blocks": len(sizes)}


def disagreement() -> dict[str, str]:
    """Every process raises, and none waits for another."""
    rank, _ = rank_and_size()
    tensors = torch.randn(3, 1, 2, 4, 8)
    return {
        "alpha": message(lambda: retrieve_context_parallel(*tensors, alpha=1.5 + 0.5 * (rank == 0))),
        "heads": message(lambda: retrieve_context_parallel(*tensors[:, :, : 1 + (rank == 0)])),
        "positions": message(lambda: retrieve_context_parallel(*tensors, positions=torch.arange(3))),
        "mask": message(lambda: retrieve_context_parallel(*tensors, mask=torch.ones(4, 4, dtype=torch.bool))),
    }


def message(call) -> str:
    try:
        call()
    except (ValueError, TypeError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


# ---- Models ----


def sparse(name: str, settings: dict, **changes) -> torch.nn.Module:
    return to_sparse_hopfield(tiny_model(name, **changes), SparseHopfieldConfig(**settings)).train()


def batch(padding: str | None = None) -> dict[str, Tensor]:
    tokens = torch.randint(3, VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    inputs = {"input_ids": tokens, "labels": tokens.clone()}
    if padding is not None:
        mask = torch.ones_like(tokens)
        mask[1, slice(0, 7) if padding == "left" else slice(-7, None)] = 0
        inputs["attention_mask"] = mask
        inputs["labels"][mask == 0] = -100
    return inputs


def compare_model(model: torch.nn.Module, inputs: dict[str, Tensor]) -> list[float]:
    """Differences of the loss and of the gradients from those of one process."""
    loss = model(**inputs).loss
    loss.backward()
    expected = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    with context_parallel(model, inputs) as part:
        own = model(**part).loss
        own.backward()
    total = own.detach().clone()
    dist.all_reduce(total)
    differences = [distance(total, loss.detach())]
    for name, weight in model.named_parameters():
        if name in expected:
            dist.all_reduce(weight.grad)
            differences.append(distance(weight.grad, expected[name]))
    return [differences[0], max(differences[1:])]


def models() -> dict[str, list[float]]:
    recomputed = sparse("llama", LEARNED)
    recomputed.gradient_checkpointing_enable()
    return {
        "llama": compare_model(sparse("llama", LEARNED), batch()),
        "heads": compare_model(
            sparse("llama", {"alpha": [1.0, 1.2, 1.75, 2.0], "beta": [1, 2, 3, 4]}), batch("right")
        ),
        "half dense": compare_model(sparse("llama", {"layers": [1]}), batch("left")),
        "several steps": compare_model(sparse("llama", {**LEARNED, "steps": 2}), batch()),
        "recomputed": compare_model(recomputed, batch("left")),
        "sliding window": compare_model(sparse("mistral", LEARNED, sliding_window=5), batch("left")),
        "sinks": compare_model(sparse("gpt_oss", LEARNED), batch()),
        "absolute positions": compare_model(
            sparse("gpt2", LEARNED, attn_pdrop=0, resid_pdrop=0, embd_pdrop=0), batch()
        ),
        "softcap": compare_model(sparse("gemma2", LEARNED), batch("left")),
        "bidirectional": compare_logits(sparse("bert", LEARNED).eval(), batch("left")),
    }


def compare_logits(model: torch.nn.Module, inputs: dict[str, Tensor]) -> list[float]:
    """Difference of the logits of this process's tokens from those of one process."""
    rank, size = rank_and_size()
    inputs = {name: value for name, value in inputs.items() if name != "labels"}
    with torch.no_grad():
        expected = model(**inputs).logits[:, sharded_positions(LENGTH, size)[rank]]
        with context_parallel(model, inputs) as part:
            return [distance(model(**part).logits, expected)]


def training(folder: Path) -> dict[str, list[float]]:
    """Three steps under DistributedDataParallel, then the model is saved."""
    rank, size = rank_and_size()
    losses: dict[str, list[float]] = {"one": [], "several": []}
    alone, model = sparse("llama", LEARNED), sparse("llama", LEARNED)
    wrapped = DistributedDataParallel(model)
    optimizers = [torch.optim.SGD(x.parameters(), lr=0.5) for x in (alone, model)]
    for _ in range(3):
        loss = alone(**batch()).loss
        loss.backward()
        losses["one"].append(loss.item())
        with context_parallel(wrapped, batch()) as part:
            own = wrapped(**part).loss
            (own * size).backward()
        total = own.detach().clone()
        dist.all_reduce(total)
        losses["several"].append(total.item())
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    if rank == 0:
        model.save_pretrained(folder / "several")
        alone.save_pretrained(folder / "one")
    return losses


def refusals() -> dict[str, str]:
    """What is refused, in every process alike."""
    inputs = {"input_ids": batch()["input_ids"]}
    model = sparse("llama", {})

    def run(model, inputs=inputs, **options) -> str:
        def forward():
            with context_parallel(model, inputs) as part:
                model(**part, **options)

        return message(forward)

    def outside_the_context():
        recomputed = sparse("llama", {})
        recomputed.gradient_checkpointing_enable()
        with context_parallel(recomputed, batch()) as part:
            loss = recomputed(**part).loss
        loss.backward()

    def while_observed():
        with observed(model, OwnSettings()), context_parallel(model, inputs) as part:
            model(**part)

    def nested():
        with context_parallel(model, inputs), context_parallel(model, inputs):
            pass

    def generate():
        with context_parallel(model, inputs) as part:
            model.generate(part["input_ids"], max_new_tokens=3, do_sample=False)

    packed = torch.cat([torch.arange(9), torch.arange(10)]).expand(2, -1)
    four = torch.ones(2, 1, LENGTH, LENGTH, dtype=torch.bool)
    classified = {**inputs, "labels": torch.zeros(2, dtype=torch.int64)}
    return {
        "dropout": run(sparse("llama", {}, attention_dropout=0.1)),
        "output_attentions": run(model, output_attentions=True),
        "cu_seq_lens": run(model, cu_seq_lens_q=torch.tensor([0, 5, 10])),
        "packed": run(model, {**inputs, "position_ids": packed}),
        "own mask": run(model, {**inputs, "attention_mask": four}),
        "own softmax": run(sparse("bloom", {})),
        "encoder-decoder": run(sparse("bart", {})),
        "masked language model": run(sparse("bert", {}), batch()),
        "no sequence": run(model, classified),
        "dense": run(tiny_model("llama")),
        "outside": message(outside_the_context),
        "observed": message(while_observed),
        "nested": message(nested),
        "generate": message(generate),
    }


# ---- accelerate and the Trainer ----


def fresh_accelerator(**options) -> Accelerator:
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["LlamaDecoderLayer"],
    )
    return Accelerator(cpu=True, parallelism_config=ParallelismConfig(cp_size=2), fsdp_plugin=plugin, **options)


def accelerated() -> dict:
    """`Accelerator.maybe_context_parallel`, as its documentation shows it."""
    accelerator, found = fresh_accelerator(), {}
    model = sparse("llama", LEARNED)
    model, _ = accelerator.prepare(model, torch.optim.SGD(model.parameters()))
    for length, note in ((16, "balanced"), (18, "contiguous"), (15, "uneven")):
        tokens = torch.randint(3, VOCABULARY, (2, length), generator=torch.Generator().manual_seed(length))
        alone = sparse("llama", LEARNED)
        loss = alone(input_ids=tokens, labels=tokens).loss
        loss.backward()
        model.zero_grad()
        total, backward = accelerated_loss(accelerator, model, tokens)
        backward()
        gradients = [
            distance(weight.grad.full_tensor(), other.grad)
            for weight, other in zip(model.parameters(), alone.parameters(), strict=True)
        ]
        found[note] = [abs(total - loss.item()), max(gradients)]
    mask = torch.ones_like(tokens)
    mask[1, -4:] = 0
    labels = tokens.masked_fill(mask == 0, -100)
    expected = alone(input_ids=tokens, attention_mask=mask, labels=labels).loss.item()
    found["right"] = [abs(accelerated_loss(accelerator, model, tokens, mask, labels)[0] - expected)]
    found["left"] = message(lambda: accelerated_loss(accelerator, model, tokens, mask.flip(1)))
    found["outside"] = message(lambda: model(input_ids=tokens, attention_mask=mask.flip(1)))
    packed = torch.cat([torch.arange(7), torch.arange(8)]).repeat(2, 1)
    found["packed"] = message(lambda: accelerated_loss(accelerator, model, tokens, positions=packed))
    return found


def accelerated_loss(accelerator, model, tokens, mask=None, labels=None, positions=None):
    count, length = tokens.shape
    positions = torch.arange(length).repeat(count, 1) if positions is None else positions
    labels = torch.nn.functional.pad(tokens if labels is None else labels, (0, 1), value=-100)[:, 1:].contiguous()
    inputs = {"input_ids": tokens.clone(), "position_ids": positions}
    if mask is not None:
        inputs["attention_mask"] = mask.clone()
    items = (labels != -100).sum()
    buffers = [*inputs.values(), labels]
    context = accelerator.maybe_context_parallel(
        buffers=buffers, buffer_seq_dims=[1] * len(buffers), no_restore_buffers=set(buffers)
    )
    with context:
        logits = model(**inputs, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / items
    total = loss.detach().clone()
    dist.all_reduce(total)
    return total.item(), lambda: accelerator.backward(loss * accelerator.num_processes)


def trained(folder: Path) -> dict:
    """transformers' Trainer with a `ParallelismConfig`."""
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    options = {
        "parallelism_config": ParallelismConfig(cp_size=2),
        "fsdp": "full_shard auto_wrap",
        "fsdp_config": {"fsdp_version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]},
    }
    trainer = make_trainer(folder, **options)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {"losses": losses, "evaluated": trainer.evaluate()["eval_loss"]}


def make_trainer(folder: Path, **options) -> Trainer:
    draw = torch.Generator().manual_seed(2)
    rows = [torch.randint(3, VOCABULARY, (16,), generator=draw) for _ in range(8)]
    data = [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row.clone()} for row in rows]
    arguments = TrainingArguments(
        str(folder / "trainer"),
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        max_steps=3,
        learning_rate=1e-2,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
        **options,
    )
    return Trainer(sparse("llama", LEARNED), arguments, train_dataset=data, eval_dataset=data[:4])


CASES = {
    case.__name__: case
    for case in (
        double,
        single,
        bfloat16,
        many,
        blocks,
        disagreement,
        models,
        training,
        refusals,
        accelerated,
        trained,
    )
}
WITH_FOLDER = ("training", "trained")


def main() -> None:
    torch.set_num_threads(1)
    allow_fsdp_on_cpus()
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    # a process that waits for one that has failed must not wait long
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    results = {}
    for name in names:
        try:
            results[name] = CASES[name](folder) if name in WITH_FOLDER else CASES[name]()
        except Exception:
            results[name] = {"failed": traceback.format_exc()}
            break
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
