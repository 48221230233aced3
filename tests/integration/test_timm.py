# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Towers of timm in transformers models."""

import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForImageClassification,
    PreTrainedConfig,
    PreTrainedModel,
    TimmWrapperConfig,
)

from hf_sparse_hopfield import SparseHopfieldConfig, entmax, to_dense, to_sparse_hopfield
from hf_sparse_hopfield.calibration.calibration import calibrate
from hf_sparse_hopfield.calibration.comparison import compare_with_dense
from hf_sparse_hopfield.integration.families import NOT_SCORES, class_key, classify
from hf_sparse_hopfield.integration.sites import attention_sites
from hf_sparse_hopfield.observation import Observer, OwnSettings, observed

from ..roads.table import road
from ..tiny_families import tiny_family
from .eager_oracle import entmax_for_softmax
from .families_table import TIMM, sweep_one


pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("timm") is None, reason="timm is not installed: pip install '.[timm]', or run .ci/timm"
)

_VIT = {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 24, "num_heads": 3}
_TRACED = {"features_only": True, "feature_cls": "fx", "out_indices": (0, 1)}
_STAGES = {"embed_dims": (12, 12, 24, 24), "depths": (1, 1, 1, 1), "num_heads": (3, 3, 3, 3)}
_SWIN = {"img_size": 32, "embed_dim": 12, "depths": (2, 2), "num_heads": (3, 3), "window_size": 4}
_LEVIT = {"img_size": 128, "embed_dim": (24, 24, 24), "key_dim": 4, "num_heads": (3, 3, 3), "depth": (1, 1, 1)}

# Tiny models of the families of timm. Where they can be chosen there are 3 heads, a size that no other axis of scores has.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "beit_base_patch16_224": _VIT,
    "cait_xxs24_224": _VIT,
    "convit_tiny": {**_VIT, "local_up_to_layer": 1},
    "crossvit_tiny_240": {
        **{"img_size": 48, "img_scale": (1.0, 1.0), "patch_size": (12, 16), "embed_dim": (24, 24)},
        **{"num_heads": (3, 3), "depth": ((1, 1, 1),)},
    },
    "deit_tiny_distilled_patch16_224": _VIT,
    "efficientformer_l1": {"depths": (1, 1, 1, 1), "embed_dims": (8, 8, 16, 24), "num_vit": 1, "_size": 224},
    "efficientformerv2_s0": {
        **{"depths": (1, 1, 2, 2), "embed_dims": (8, 8, 16, 24), "num_vit": 1, "mlp_ratios": 2, "img_size": 64},
    },
    "efficientvit_m0": {
        **{"img_size": 128, "embed_dim": (24, 24, 24), "num_heads": (3, 3, 3), "key_dim": (4, 4, 4)},
        **{"depth": (1, 1, 1), "window_size": (4, 4, 4), "kernels": (3, 3, 3)},
    },
    "eva02_tiny_patch14_224": _VIT,
    "fastvit_sa12": {"layers": (1, 1, 1, 1), "embed_dims": (16, 16, 32, 96), "_size": 64},
    "hiera_tiny_224": {"img_size": 64, "embed_dim": 12, "num_heads": 3, "stages": (1, 1, 1, 1), "head_mul": 1.0},
    "iformer_t": {"dims": (8, 8, 16, 16), "depths": (1, 1, 5, 4), "attn_groups": (0, 0, 1, 1), "_size": 64},
    "levit_128s": _LEVIT,
    "levit_conv_128s": _LEVIT,
    "maxvit_rmlp_pico_rw_256": {"img_size": 64, "embed_dim": (32, 32, 32, 96), "depths": (1, 1, 1, 1)},
    "mobilevit_xxs": {"_size": 160},
    "mobilenetv5_300m_enc": {"channel_multiplier": 0.01, "_size": 64},
    "naflexvit_base_patch16_gap": _VIT,
    "pvt_v2_b0": {**_STAGES, "_size": 64},
    "samvit_base_patch16": {**_VIT, "window_size": 2, "global_attn_indexes": (1,), "neck_chans": 8},
    "swin_tiny_patch4_window7_224": _SWIN,
    "swinv2_cr_tiny_224": _SWIN,
    "swinv2_tiny_window8_256": _SWIN,
    "tiny_vit_5m_224": {**_STAGES, "window_sizes": (4, 4, 4, 2), "_size": 64},
    "tnt_s_patch16_224": {
        **{"img_size": 32, "embed_dim": 24, "inner_dim": 12, "depth": 1, "num_heads_inner": 3, "num_heads_outer": 3},
    },
    "twins_svt_small": {**_STAGES, "img_size": 64, "depths": (2, 2, 2, 2), "wss": (4, 4, 4, 2)},
    "visformer_tiny": {"img_size": 64, "init_channels": 8, "embed_dim": 48, "depth": (1, 1, 1), "num_heads": 3},
    "vit_base_patch16_siglip_224": _VIT,
    "vit_pe_core_tiny_patch16_384": _VIT,
    "vit_relpos_small_patch16_224": _VIT,
    "vit_tiny_patch16_224": _VIT,
}

# Classes whose models cannot be made small: the arguments of the class, the shape of its input, and what else it takes.
_TOKENS, _IMAGE, _GRID = (2, 16, 24), (2, 24, 4, 4), (2, 4, 4, 24)
_HEADS = {"dim": 24, "num_heads": 3}
_ANGLES = torch.linspace(0, 6, 16 * 8, dtype=torch.float64).view(1, 16, 8)
LAYERS: dict[str, tuple] = {
    "layers.attention2d.Attention2d": (_HEADS, _IMAGE),
    "layers.attention2d.MultiQueryAttentionV2": ({**_HEADS, "key_dim": 8, "value_dim": 8}, _IMAGE),
    "layers.attention_pool.AttentionPoolPrr": (_HEADS, _TOKENS),
    "layers.attention_pool2d.AttentionPool2d": ({"in_features": 24, "num_heads": 3, "feat_size": 4}, _IMAGE),
    "layers.attention_pool2d.RotAttentionPool2d": ({"in_features": 24, "num_heads": 3, "ref_feat_size": 4}, _IMAGE),
    "layers.bottleneck_attn.BottleneckAttn": ({"dim": 24, "num_heads": 3, "feat_size": (4, 4)}, _IMAGE),
    "layers.diff_attention.DiffAttention": (_HEADS, _TOKENS),
    "layers.halo_attn.HaloAttn": ({**_HEADS, "block_size": 2, "halo_size": 1}, _IMAGE),
    "layers.non_local_attn.NonLocalAttn": ({"in_channels": 24}, _IMAGE),
    "layers.other_pool.SimPool1d": (_HEADS, _TOKENS),
    "layers.other_pool.SimPool2d": ({**_HEADS, "gamma": 2.0}, _IMAGE),
    "models.cpubone.ConvAttention": ({"input_dim": 90, "att_stride": 1, "att_kernel": 3}, (2, 90, 4, 4)),
    "models.davit.WindowAttention": ({**_HEADS, "window_size": (4, 4)}, _TOKENS),
    "models.gcvit.WindowAttentionGlobal": ({**_HEADS, "window_size": (4, 4), "use_global": False}, _TOKENS),
    "models.gemma4_vit.Gemma4Attention": ({**_HEADS, "head_dim": 8}, _TOKENS, _ANGLES.cos(), _ANGLES.sin()),
    "models.hieradet_sam2.MultiScaleAttention": ({**_HEADS, "dim_out": 24}, _GRID),
    "models.lowformer.ConvAttention": ({"input_dim": 180, "att_stride": 1, "att_kernel": 3}, (2, 180, 4, 4)),
    "models.maxxvit.Attention2d": ({"dim": 24, "dim_head": 8}, _IMAGE),
    "models.metaformer.Attention": ({"dim": 24, "head_dim": 8}, _TOKENS),
    "models.mvitv2.MultiScaleAttention": (
        {**_HEADS, "dim_out": 24, "feat_size": (4, 4), "has_cls_token": False},
        *(_TOKENS, (4, 4)),
    ),
    "models.nest.Attention": (_HEADS, (2, 5, 4, 24)),
    "models.nextvit.EfficientAttention": ({"dim": 24, "head_dim": 8, "sr_ratio": 2}, _TOKENS),
    "models.shvit.SHSA": ({"dim": 24, "qk_dim": 8, "pdim": 12}, _IMAGE),
    "models.vision_transformer.DiffParallelScalingBlock": (_HEADS, _TOKENS),
    "models.vision_transformer.ParallelScalingBlock": (_HEADS, _TOKENS),
    "models.volo.Attention": (_HEADS, _GRID),
    "models.volo.ClassAttention": (_HEADS, _TOKENS),
}


class OneLayer(PreTrainedModel):
    """A layer of timm as a model."""

    config_class = PreTrainedConfig
    main_input_name = "pixel_values"

    def __init__(self, config: PreTrainedConfig, layer: nn.Module, further: tuple) -> None:
        super().__init__(config)
        self.layer, self.further = layer, further
        self.post_init()

    def forward(self, pixel_values: torch.Tensor) -> tuple[torch.Tensor]:
        output = self.layer(pixel_values, *self.further)
        return output if isinstance(output, tuple) else (output,)


def made(name: str, fused: bool = True) -> tuple[PreTrainedModel, torch.Tensor]:
    """A dense model with random weights and an input, in double precision; `fused` lets it call SDPA."""
    # the default of timm.layers.config, without a warning that it is experimental
    with mock.patch("timm.layers.config._USE_FUSED_ATTN", 1 if fused else 0):
        if name in LAYERS:
            arguments, shape, *further = LAYERS[name]
            module, _, cls = name.rpartition(".")
            made_by = getattr(pytest.importorskip(f"timm.{module}"), cls, None)
            if made_by is None:
                pytest.skip(f"this release of timm has no {name}")
            model: PreTrainedModel = OneLayer(PreTrainedConfig(), made_by(**arguments), tuple(further))
        else:
            if not importlib.import_module("timm").is_model(name):
                pytest.skip(f"this release of timm has no {name}")
            arguments = dict(ARCHITECTURES[name])
            size = arguments.pop("_size", arguments.get("img_size"))
            shape = (2, 3, size, size)
            auto_class = AutoModel if name.endswith("_enc") else AutoModelForImageClassification
            config = TimmWrapperConfig(architecture=name, model_args=arguments, do_pooling=False, num_labels=5)
            model = auto_class.from_config(config)
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0)).double()
    return randomized(model.double(), inputs).eval(), inputs


def randomized(model: nn.Module, inputs: torch.Tensor) -> nn.Module:
    """Random weights also where timm starts with constants, such as layer scales of 0, which would hide the attention."""
    model.eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            constant = weight.numel() == 1 or bool((weight == weight.flatten()[0]).all())
            random = torch.randn(weight.shape, generator=generator)
            weight.copy_(1 + 0.3 * random if constant else random / max(1, weight[0].numel()) ** 0.5)
        for norm in model.modules():
            if isinstance(norm, nn.modules.batchnorm._BatchNorm):
                norm.train().momentum = 1.0
        model(inputs)
    return model


def forward(model: PreTrainedModel, inputs: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(pixel_values=inputs)[0]


@contextmanager
def entmax_by_hand(model: nn.Module, settings: dict[str, tuple[torch.Tensor, float]]) -> Iterator[None]:
    """In the modules that `settings` names, softmax is entmax of beta (one per head) times the scores."""
    running: list[tuple[torch.Tensor, float]] = []

    def replaced(holder):
        softmax = holder.softmax

        def entmax_or_softmax(input, dim=None, _stacklevel=3, dtype=None):
            if not running:
                return softmax(input, dim=dim, dtype=dtype)
            beta, alpha = running[-1]
            return entmax(input * _along_heads(beta, input), alpha=alpha, dim=dim)

        return mock.patch.object(holder, "softmax", entmax_or_softmax)

    with ExitStack() as stack:
        for name, values in settings.items():
            module = model.get_submodule(name)
            enter = module.register_forward_pre_hook(lambda *_, values=values: running.append(values))
            leave = module.register_forward_hook(lambda *_: running.pop() and None)
            stack.callback(enter.remove)
            stack.callback(leave.remove)
        for holder in (torch.nn.functional, torch, torch.Tensor):
            stack.enter_context(replaced(holder))
        yield


def _along_heads(beta: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """One value per head in the shape of the scores. The axis of the heads is the one of their size."""
    heads = beta.numel()
    if heads == 1:
        return beta.reshape(())
    axes = [axis for axis, size in enumerate(scores.shape[:-1]) if size == heads]
    if not axes and 2 * heads in scores.shape[:-1] and scores.shape[0] == 2:  # differential attention: pairs of heads
        beta, axes = beta.repeat_interleave(2), [scores.shape.index(2 * heads)]
    if not axes:  # batch * heads
        beta, axes = beta.repeat(scores.shape[0] // heads), [0]
    assert len(axes) == 1, f"heads are not unique in {tuple(scores.shape)}"
    return beta.view(*(-1 if axis == axes[0] else 1 for axis in range(scores.ndim)))


class Heads(Observer):
    """The number of heads in the retrievals of each layer. The layers stay dense."""

    def __init__(self) -> None:
        self.heads: dict[str, int] = {}

    def observe(self, name, problem):
        self.heads[name] = problem.query.shape[1]


@road("timm models, by `attn_implementation` or `to_sparse_hopfield`", "equal")
@pytest.mark.parametrize("fused", [True, False], ids=["sdpa", "softmax"])
@pytest.mark.parametrize("name", [*ARCHITECTURES, *LAYERS])
def test_equals_timm_with_entmax_for_softmax(name, fused):
    """Tiny models of timm's families, against timm's own softmax swapped for entmax, with and without its call of SDPA."""
    reference, inputs = made(name, fused=False)
    dense = forward(reference, inputs)
    model, _ = made(name, fused)
    # One beta for all heads where timm does not keep them apart, which includes pairs of heads without SDPA.
    per_head = all(site.kind.per_head for site in attention_sites(model)) and (fused or "Diff" not in name)
    model.config.sparse_hopfield = SparseHopfieldConfig(alpha=1.5, learn_beta=per_head)
    model.set_attn_implementation("sparse_hopfield")
    settings = {}
    for site in attention_sites(model):
        retrieval = site.module.sparse_hopfield
        beta = torch.rand(retrieval.num_heads if per_head else 1, dtype=torch.float64) + 1
        retrieval.set(beta=beta if per_head else beta.item())
        settings[site.name] = (beta, 1.5)
    with entmax_by_hand(reference, settings):
        expected = forward(reference, inputs)
    assert not torch.allclose(expected, dense, rtol=1e-3), "attention does not matter in this model"
    torch.testing.assert_close(forward(model, inputs), expected)
    with observed(model, OwnSettings()):
        torch.testing.assert_close(forward(model, inputs), expected, rtol=1e-5, atol=1e-6)
    recorder = Heads()
    with observed(model, recorder):
        torch.testing.assert_close(forward(model, inputs), dense)
    if per_head:
        assert recorder.heads == {name: beta.numel() for name, (beta, _) in settings.items()}
    for site in attention_sites(model):
        site.module.sparse_hopfield.set(alpha=1.0, beta=1.0)
    torch.testing.assert_close(forward(model, inputs), dense)


@pytest.mark.parametrize("name", ["beit_base_patch16_224", "swin_tiny_patch4_window7_224", "samvit_base_patch16"])
def test_gradients_do_not_depend_on_sdpa(name):
    """Position terms come as the mask of SDPA. Beta multiplies them, and both have gradients."""
    gradients = []
    for fused in (True, False):
        model, inputs = made(name, fused)
        model = to_sparse_hopfield(model, {"alpha": 1.5, "learn_beta": True})
        model(pixel_values=inputs)[0].square().sum().backward()
        gradients.append({name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None})
    assert any("log_beta" in name for name in gradients[0]) and any(
        "rel_pos" in n or "relative" in n for n in gradients[0]
    )
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-6, atol=1e-8)


@road("timm models whose softmax is not over keys: XCiT, DaViT, CoaT, MobileViTv2, EdgeNeXt, LambdaNet", "refused")
@pytest.mark.parametrize(
    ("architecture", "arguments", "reason"),
    [
        ("xcit_nano_12_p16_224", {"depth": 1}, "(XCA) cannot retrieve sparsely: its softmax is over channels"),
        ("davit_tiny", {"depths": (1,) * 4, "embed_dims": (12,) * 4, "num_heads": (3,) * 4}, "over channels"),
        ("coat_lite_tiny", {}, "its attention is linear"),
        ("mobilevitv2_050", {}, "its attention is linear"),
        ("edgenext_xx_small", {}, "over channels"),
        ("lambda_resnet26t", {}, "its attention is linear"),
        ("vit_tiny_patch16_224", {**_VIT, **_TRACED}, "it runs a traced graph of the model"),
        ("resnet18", {}, "no softmax attention over keys"),
    ],
)
def test_what_is_not_softmax_over_keys_is_refused(architecture, arguments, reason):
    """A model of each is made with the name of our attention; the error names the layer and the reason."""
    config = TimmWrapperConfig(architecture=architecture, model_args=arguments)
    with pytest.raises(ValueError) as error:
        AutoModel.from_config(config, attn_implementation="sparse_hopfield")
    assert reason in str(error.value)


def test_named_layers_of_a_model_with_other_attention_are_sparse():
    arguments = {"depths": (1,) * 4, "embed_dims": (12,) * 4, "num_heads": (3,) * 4}
    model = AutoModel.from_config(TimmWrapperConfig(architecture="davit_tiny", model_args=arguments)).eval()
    layers = [site.name for site in attention_sites(model) if not site.kind.refused]
    inputs = torch.randn(2, 3, 64, 64)
    dense = forward(model, inputs)
    model = to_sparse_hopfield(model, {"layers": layers, "beta": 20.0})
    assert len(layers) == 4 and not torch.allclose(forward(model, inputs), dense)
    torch.testing.assert_close(forward(to_dense(model), inputs), dense)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Importing from timm:FutureWarning")  # old names
def test_every_softmax_of_timm_is_in_the_tables():
    """A class of a new release that computes a softmax is refused until it is in the tables; this test names it."""
    import timm.layers
    import timm.models

    unknown = set()
    for package in (timm.layers, timm.models):
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if found.name == "timm.models.layers":  # old names
                continue
            module = importlib.import_module(found.name)
            if "softmax" not in inspect.getsource(module) and "scaled_dot" not in inspect.getsource(module):
                continue
            for cls in vars(module).values():
                if inspect.isclass(cls) and issubclass(cls, nn.Module) and cls.__module__ == module.__name__:
                    kind = classify(cls)
                    if kind is not None and kind.refused and "is not in the table" in kind.reason:
                        unknown.add(class_key(cls))
    assert unknown == {"timm.mvitv2.MultiScaleAttentionPoolFirst"}  # no model uses it, and its matrix product fails


def test_gates_of_convolutions_stay_as_they_are():
    from timm.layers import GlobalContext, SelectiveKernel, SplitAttn

    for cls in (GlobalContext, SelectiveKernel, SplitAttn):
        assert classify(cls) is None
    assert {key for key in NOT_SCORES if key.startswith("timm.")}


# ---- Towers in models of transformers ----


@road("models with a timm tower: PE, PerceptionLM, Gemma 3n, FastVLM, EdgeTAM, timm backbone", "equal")
@pytest.mark.parametrize("model_type", TIMM)
def test_every_model_type_with_a_tower(model_type):
    """Each of the model types runs; every attention module in it, those of the tower included, retrieves sparsely."""
    row = sweep_one(model_type)
    assert (row.note, row.dense) == ("", "")
    assert row.route == TIMM[model_type]


def _tower(model_type: str) -> PreTrainedModel:
    """A tiny model. The layer scales of MobileNetV5, 1e-5, would hide its attention."""
    model = tiny_family(model_type)
    for name, weight in model.named_parameters():
        if name.endswith("layer_scale.gamma"):
            nn.init.ones_(weight)
    return model


def _tower_inputs(model_type: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    size = 64 if model_type == "gemma3n_vision" else 32  # MobileNetV5 divides it by 16
    image = torch.randn(2, 3, size, size)
    if model_type == "pe_video_encoder":
        return {"pixel_values_videos": torch.randn(2, 4, 3, 32, 32)}
    if model_type == "perception_lm":
        config = tiny_family(model_type).config
        tokens = torch.randint(3, 90, (2, 20))
        tokens[:, :16] = config.image_token_id
        return {"input_ids": tokens, "pixel_values": image[:, None]}
    return {"pixel_values": image}


@road("a model with a timm tower, saved and loaded", "equal")
@pytest.mark.parametrize("model_type", ["perception_lm", "pe_video_encoder", "timm_wrapper", "gemma3n_vision"])
def test_a_tower_is_saved_and_loaded(model_type, tmp_path):
    """The whole model equals its eager attention with entmax for softmax; saved and loaded, its outputs are the same."""
    inputs = _tower_inputs(model_type)
    with mock.patch("timm.layers.config._USE_FUSED_ATTN", 0):
        reference = _tower(model_type)
    reference.set_attn_implementation("eager")
    with torch.no_grad(), entmax_for_softmax(1.5):
        expected = reference(**inputs)[0]
    model = to_sparse_hopfield(_tower(model_type), {"alpha": 1.5, "learn_beta": True})
    with torch.no_grad():
        torch.testing.assert_close(model(**inputs)[0], expected, rtol=1e-3, atol=1e-3)
        for site in attention_sites(model):
            retrieval = site.module.sparse_hopfield
            retrieval.set(beta=torch.linspace(0.5, 2, retrieval.num_heads))
        result = model(**inputs)[0]
        model.save_pretrained(tmp_path)
        loaded = AutoModel.from_pretrained(tmp_path)
        assert type(loaded) is type(model) and not torch.allclose(result, expected, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(loaded(**inputs)[0], result)


@pytest.mark.parametrize("name", ["vit_pe_core_tiny_patch16_384", "swin_tiny_patch4_window7_224", "hiera_tiny_224"])
def test_a_tower_is_calibrated(name):
    model, inputs = made(name)
    model, batches = to_sparse_hopfield(model, {"alpha": 1.5}), [{"pixel_values": inputs}]
    before = compare_with_dense(model, batches)
    _, report = calibrate(model, batches, refine_steps=0, progress=False)
    assert compare_with_dense(model, batches)["divergence"] < 0.5 * before["divergence"]
    assert len(report.layers) == len(attention_sites(model))


def test_a_tower_is_compiled_in_one_graph():
    model, inputs = made("swin_tiny_patch4_window7_224")
    model = to_sparse_hopfield(model, {"alpha": 1.5, "learn_beta": True})
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(forward(compiled, inputs), forward(model, inputs))
