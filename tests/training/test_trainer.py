# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest
from transformers import TrainingArguments

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.training import SparseHopfieldArguments, SparseHopfieldTrainer, learned_parameter_names
from tests.tiny_models import tiny_inputs, tiny_model, tiny_output

from .run_cases import digest, make_data, make_model


def make_trainer(folder, arguments, case="bert", sparse_hopfield_args=None, callbacks=None, **options):
    options = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", **options}
    return SparseHopfieldTrainer(
        make_model({"model": case}, arguments),
        TrainingArguments(str(folder), **{"max_steps": 4, "weight_decay": 0.1, **options}),
        train_dataset=make_data({"model": case}),
        sparse_hopfield_args=sparse_hopfield_args,
        callbacks=callbacks,
    )


def groups_of(trainer) -> list[dict]:
    names = {id(parameter): name for name, parameter in trainer.model.named_parameters()}
    return [
        {**group, "params": [names[id(parameter)] for parameter in group["params"]]}
        for group in trainer.optimizer.param_groups
    ]


@pytest.mark.parametrize("case", ["bert", "layers"])
def test_learned_parameters_have_no_weight_decay_and_their_own_rate(tmp_path, case):
    arguments = SparseHopfieldArguments(learn_alpha=True, learn_beta=True, hopfield_learning_rate=0.5)
    trainer = make_trainer(tmp_path, arguments, case, sparse_hopfield_args=arguments, learning_rate=0.25)
    learned = learned_parameter_names(trainer.model)
    assert len(learned) == (4 if case == "bert" else 2)
    trainer.create_optimizer_and_scheduler(4)
    decayed, plain, own = groups_of(trainer)
    assert own["params"] == learned and (own["lr"], own["weight_decay"]) == (0.5, 0.0)
    assert decayed["weight_decay"] == 0.1 and (decayed["lr"], plain["lr"]) == (0.25, 0.25)
    everything = [name for group in (decayed, plain, own) for name in group["params"]]
    assert sorted(everything) == sorted(name for name, _ in trainer.model.named_parameters())
    trainer.optimizer.step()
    trainer.lr_scheduler.step()
    assert [group["lr"] for group in trainer.optimizer.param_groups] == [0.1875, 0.1875, 0.375]  # linear, 4 steps

    same_rate = SparseHopfieldArguments(learn_beta=True)
    trainer = make_trainer(tmp_path, same_rate, case, sparse_hopfield_args=same_rate)
    trainer.create_optimizer()
    decayed, plain = groups_of(trainer)
    assert set(learned_parameter_names(trainer.model)) <= set(plain["params"])
    assert not set(learned_parameter_names(trainer.model)) & set(decayed["params"])


def test_a_rate_for_nothing_is_refused(tmp_path):
    arguments = SparseHopfieldArguments(learn_beta=True, hopfield_learning_rate=0.5)
    dense = SparseHopfieldArguments(sparse_hopfield=False)
    trainer = make_trainer(tmp_path, dense, sparse_hopfield_args=arguments)
    with pytest.raises(ValueError, match="no learned alpha or beta"):
        trainer.create_optimizer()
    arguments.sparse_hopfield = False  # the baseline is trained with the same arguments otherwise
    make_trainer(tmp_path, dense, sparse_hopfield_args=arguments).create_optimizer()
    with pytest.raises(TypeError, match="sparse_hopfield_args must be"):
        make_trainer(tmp_path, dense, sparse_hopfield_args={"alpha": 1.5})


def test_callbacks_are_added_once(tmp_path):
    arguments = SparseHopfieldArguments(alpha_schedule="linear", sparsity_logging_steps=2)
    given = arguments.callbacks()
    for callbacks in ([], given):
        trainer = make_trainer(tmp_path, arguments, sparse_hopfield_args=arguments, callbacks=callbacks)
        added = [callback for callback in trainer.callback_handler.callbacks if type(callback) in map(type, given)]
        assert [type(callback) for callback in added] == [type(callback) for callback in given]
        assert added[1].trainer is trainer
        assert not callbacks or added == given


@pytest.mark.parametrize("case", ["bert", "llama", "layers"])
def test_accumulating_gradients_changes_nothing(tmp_path, case):
    # transformers' own trainer sums the loss of a classifier over the steps of accumulation
    arguments = SparseHopfieldArguments(learn_beta=True)
    losses = []
    for steps in (1, 2):
        options = {"per_device_train_batch_size": 8 // steps, "gradient_accumulation_steps": steps}
        trainer = make_trainer(tmp_path, arguments, case, logging_steps=1, learning_rate=1e-2, **options)
        trainer.train()
        losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert trainer.model_accepts_loss_kwargs == (case == "llama")
    assert len(losses[0]) == 4 and losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("case", ["bert", "llama"])
def test_evaluating_first_finds_out_whether_the_loss_uses_the_count(tmp_path, case):
    trainer = make_trainer(tmp_path, SparseHopfieldArguments(), case, gradient_accumulation_steps=2)
    assert trainer.model_accepts_loss_kwargs
    trainer.evaluate(make_data({"model": case}))
    assert trainer.model_accepts_loss_kwargs == (case == "llama")


@pytest.mark.parametrize("settings", [{"alpha": 1.0}, {"learn_alpha": True}, {"layers": [1], "steps": 1}])
@pytest.mark.parametrize("family", ["llama", "t5", "vit", "mpnet"])
def test_every_learned_parameter_gets_a_gradient(family, settings):
    # otherwise DDP would wait for it
    model = to_sparse_hopfield(tiny_model(family), {"learn_beta": True, **settings}).train()
    tiny_output(model, tiny_inputs(family)).square().sum().backward()
    parameters = dict(model.named_parameters())
    learned = learned_parameter_names(model)
    assert learned and all(parameters[name].grad is not None for name in learned)


def test_resuming_without_a_checkpoint_says_where_it_looked(tmp_path):
    trainer = make_trainer(tmp_path, SparseHopfieldArguments())
    with pytest.raises(ValueError, match=f"no whole checkpoint in output_dir='{tmp_path}'"):
        trainer.train(resume_from_checkpoint=True)


@pytest.mark.parametrize("length", [{"max_steps": 4}, {"max_steps": -1, "num_train_epochs": 0.5}])
def test_a_run_that_is_finished_is_loaded_and_not_trained(tmp_path, length):
    # an epoch has 6 steps: the last checkpoint is in the middle of one
    arguments = SparseHopfieldArguments(alpha_schedule="linear", learn_beta=True)
    options = {"save_strategy": "steps", "save_steps": 1, "learning_rate": 1e-2, **length}
    first = make_trainer(tmp_path, arguments, sparse_hopfield_args=arguments, **options)
    first.train()
    steps = first.state.global_step
    again = make_trainer(tmp_path, arguments, sparse_hopfield_args=arguments, **options)
    assert digest(again.model.state_dict()) != digest(first.model.state_dict())
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == steps and (tmp_path / f"checkpoint-{steps}").is_dir()
    assert not (tmp_path / f"checkpoint-{steps + 1}").exists()
    assert digest(again.model.state_dict()) == digest(first.model.state_dict())
    assert again.model.config.sparse_hopfield.alpha == 2.0
