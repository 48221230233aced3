# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Tables of attention classes: which are patched, which are refused and why. `patches.py` does the work.

Classes are named `folder.ClassName` after their folder in `transformers.models`, and those of timm `timm.module.ClassName`.
A class that takes its attention function from transformers' `ALL_ATTENTION_FUNCTIONS` needs no entry. An attention class
without that and without an entry here is refused, so that nothing runs dense silently; of timm, where names like `GPSA` do not
tell, every class that computes a softmax.
"""

import functools
import inspect
import re
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Kind:
    """
    How an attention class is reached.

    Args:
        route (`str`): `"registry"`, `"patched"` or `"refused"`.
        reason (`str`): Why it is refused.
        heads (`str` or `None`):
            Where a patched class has its heads when it normalises scores: `"axis -3"` of `(batch, heads, queries, keys)`,
            another axis, or `"flat"` as `(batch * heads, queries, keys)`; `None` where they are not kept apart.
        last_only (`bool`): Only softmaxes over the last dimension are over keys.
    """

    route: str
    reason: str = ""
    heads: str | None = "axis -3"
    last_only: bool = False

    @property
    def registry(self) -> bool:
        return self.route == "registry"

    @property
    def refused(self) -> bool:
        return self.route == "refused"

    @property
    def per_head(self) -> bool:
        return self.heads is not None


# Classes that compute softmax over the scores of keys themselves, by the place of their heads.
_PATCHED = {
    "axis -3": """
        aimv2.Aimv2AttentionPoolingHead bark.BarkSelfAttention big_bird.BigBirdSelfAttention
        bigbird_pegasus.BigBirdPegasusSelfAttention blip.BlipAttention blip.BlipTextSelfAttention bloom.BloomAttention
        bros.BrosSelfAttention canine.CanineSelfAttention clap.ClapAudioSelfAttention clvp.ClvpSelfAttention
        codegen.CodeGenAttention convbert.ConvBertSelfAttention cpmant.CpmAntAttention cvt.CvtSelfAttention
        dab_detr.DabDetrAttention dab_detr.DetrAttention data2vec.Data2VecVisionSelfAttention
        deberta.DisentangledSelfAttention deberta_v2.DisentangledSelfAttention donut.DonutSwinSelfAttention
        esm.EsmFoldAttention esm.EsmFoldInvariantPointAttention esm.EsmFoldSelfAttention
        evolla.EvollaSequenceAlignerCrossAttention evolla.EvollaSequenceCompressorAttention falcon.FalconAttention
        fastspeech2_conformer.FastSpeech2ConformerAttention flaubert.MultiHeadAttention flava.FlavaSelfAttention
        funnel.FunnelRelMultiheadAttention git.GitSelfAttention glpn.GLPNEfficientSelfAttention
        gpt_neo.GPTNeoSelfAttention gpt_neox_japanese.GPTNeoXJapaneseAttention gptj.GPTJAttention
        granite_speech.GraniteSpeechConformerAttention granite_speech_plus.GraniteSpeechPlusConformerAttention
        grounding_dino.GroundingDinoMultiheadAttention ibert.IBertSelfAttention imagegpt.ImageGPTAttention kosmos2_5.Kosmos2_5VisionAttention
        layoutlmv2.LayoutLMv2SelfAttention layoutlmv3.LayoutLMv3SelfAttention levit.LevitAttention
        levit.LevitAttentionSubsample lilt.LiltSelfAttention longt5.LongT5LocalAttention
        longt5.LongT5TransientGlobalAttention luke.LukeSelfAttention lxmert.LxmertAttention
        maskformer.MaskFormerSwinSelfAttention megatron_bert.MegatronBertSelfAttention mgp_str.MgpstrAttention
        mm_grounding_dino.MMGroundingDinoMultiheadAttention mobilevit.MobileViTSelfAttention mpnet.MPNetSelfAttention
        mpt.MptAttention omdet_turbo.OmDetTurboMultiheadAttention openai.Attention perceiver.PerceiverSelfAttention
        pp_doclayout_v2.PPDocLayoutV2ReadingOrderSelfAttention prophetnet.ProphetNetAttention
        prophetnet.ProphetNetNgramSelfAttention pvt.PvtEfficientSelfAttention pvt_v2.PvtV2SelfAttention
        rembert.RemBertSelfAttention roformer.RoFormerSelfAttention sew_d.DisentangledSelfAttention
        squeezebert.SqueezeBertSelfAttention superglue.SuperGlueSelfAttention swin2sr.Swin2SRSelfAttention
        swinv2.Swinv2SelfAttention tapas.TapasSelfAttention timesformer.TimesformerSelfAttention torch.MultiheadAttention
        tvp.TvpAttention vilt.ViltSelfAttention visual_bert.VisualBertSelfAttention vitdet.VitDetAttention
        wavlm.WavLMAttention
        xlm.MultiHeadAttention xlnet.XLNetRelativeAttention zoedepth.ZoeDepthMultiheadAttention

        timm.attention.Attention timm.attention.AttentionRope timm.attention2d.Attention2d
        timm.attention2d.MultiQueryAttention2d timm.attention_pool.AttentionPoolLatent
        timm.attention_pool.AttentionPoolPrr timm.attention_pool2d.AttentionPool2d
        timm.attention_pool2d.RotAttentionPool2d timm.beit.Attention timm.cait.ClassAttn timm.cait.TalkingHeadAttn
        timm.convit.GPSA timm.convit.MHSA timm.cpubone.ConvAttention timm.crossvit.CrossAttention
        timm.davit.WindowAttention timm.diff_attention.DiffAttention timm.efficientformer.Attention
        timm.efficientformer_v2.Attention2d timm.efficientformer_v2.Attention2dDownsample timm.eva.EvaAttention
        timm.fastvit.Attention timm.gcvit.WindowAttentionGlobal timm.gemma4_vit.Gemma4Attention
        timm.hieradet_sam2.MultiScaleAttention timm.levit.Attention timm.levit.AttentionDownsample
        timm.lowformer.ConvAttention timm.maxxvit.Attention2d timm.maxxvit.AttentionCl timm.metaformer.Attention
        timm.mvitv2.MultiScaleAttention timm.nextvit.EfficientAttention
        timm.other_pool.SimPool1d timm.other_pool.SimPool2d timm.pvt_v2.Attention
        timm.swin_transformer.WindowAttention timm.swin_transformer_v2.WindowAttention
        timm.swin_transformer_v2_cr.WindowMultiHeadAttention timm.tiny_vit.Attention timm.tnt.Attention
        timm.twins.GlobalSubSampleAttn timm.twins.LocallyGroupedAttn timm.visformer.Attention
        timm.vision_transformer.DiffParallelScalingBlock timm.vision_transformer.ParallelScalingBlock
        timm.vision_transformer_relpos.RelPosAttention timm.volo.Attention timm.volo.ClassAttention
    """,
    # (batch, heads, blocks of queries, queries, keys)
    "axis 1": """
        big_bird.BigBirdBlockSparseAttention bigbird_pegasus.BigBirdPegasusBlockSparseAttention
        dinat.NeighborhoodAttention gemma3n.Gemma3nAudioAttention gemma4.Gemma4AudioAttention hiera.HieraMaskUnitAttention
        pegasus_x.PegasusXGlobalLocalAttention timm.hiera.MaskUnitAttention timm.nest.Attention
    """,
    # (batch, queries, heads, keys)
    "axis 2": """
        longformer.LongformerSelfAttention led.LEDEncoderSelfAttention timm.attention2d.MultiQueryAttentionV2
    """,
    # (batch, queries, keys, heads)
    "axis 3": "esmfold2.EsmFold2MSAPairWeightedAveraging",
    "flat": """
        deepseek_ocr2.DeepseekOcr2SamVisionAttention fsmt.Attention got_ocr2.GotOcr2VisionAttention
        grounding_dino.GroundingDinoBiMultiHeadAttention groupvit.GroupViTAttention informer.InformerProbSparseAttention
        led.LEDDecoderAttention mask2former.Mask2FormerAttention mm_grounding_dino.MMGroundingDinoBiMultiHeadAttention
        mvp.MvpAttention oneformer.OneFormerAttention oneformer.OneFormerTextMapperAttention
        pp_formulanet.PPFormulaNetVisionAttention sam.SamVisionAttention sam_hq.SamHQVisionAttention
        seggpt.SegGptAttention slanext.SLANeXtVisionAttention speecht5.SpeechT5Attention
        table_transformer.TableTransformerAttention trocr.TrOCRAttention unlimited_ocr.UnlimitedOcrSamVisionAttention
        vits.VitsAttention xglm.XGLMAttention
        timm.bottleneck_attn.BottleneckAttn timm.halo_attn.HaloAttn timm.vision_transformer_sam.Attention
    """,
    # One head, or one softmax for each.
    "none": """
        chameleon.ChameleonVQVAEEncoderAttnBlock esmfold2.EsmFold2RowAttentionPooling janus.JanusVQVAEAttnBlock
        mgp_str.MgpstrA3Module slanet.SLANetAttentionGRUCell slanext.SLANeXtAttentionGRUCell
        timm.efficientvit_msra.CascadedGroupAttention timm.iformer.SHMA timm.non_local_attn.NonLocalAttn timm.shvit.SHSA
    """,
}
_LAST_ONLY = {"convbert.ConvBertSelfAttention"}  # the other one is over the taps of a convolution

_LINEAR = "its attention is linear: the scores of keys are never normalised, so there is nothing to make sparse"
_HASHED = "its attention hashes queries and keys into buckets and never sees a whole row of scores"
_CHANNELS = "its softmax is over channels (cross-covariance), not over keys"
_TRACED = "it runs a traced graph of the model, in which attention modules are gone; use another `feature_cls`"

# Attention that is not softmax over keys.
REFUSED = {
    "autoformer.AutoformerAttention": "its attention is auto-correlation: it weighs time delays, not keys",
    "mobilevitv2.MobileViTV2LinearSelfAttention": _LINEAR,
    "mra.MraSelfAttention": "its attention is a multi-resolution approximation that never has a whole row of scores",
    "nystromformer.NystromformerSelfAttention": "its attention multiplies three softmaxes over landmarks (the Nystrom "
    "approximation) and never has the scores of the keys",
    "reformer.LSHSelfAttention": _HASHED,
    "reformer.LocalSelfAttention": "it merges chunks of hashed attention and has no softmax over a whole row of scores",
    "swiftformer.SwiftFormerEfficientAdditiveAttention": _LINEAR,
    "timm._features_fx.FeatureGraphNet": _TRACED,
    "timm._features_fx.GraphExtractNet": _TRACED,
    "timm.coat.FactorAttnConvRelPosEnc": _LINEAR,
    "timm.csatv2.SpatialTransformerBlock": "its softmax is over the images of a batch, not over keys",
    "timm.davit.ChannelAttention": _CHANNELS,
    "timm.davit.ChannelAttentionV2": _CHANNELS,
    "timm.edgenext.CrossCovarianceAttn": _CHANNELS,
    "timm.lambda_layer.LambdaLayer": _LINEAR,
    "timm.mobilevit.LinearSelfAttention": _LINEAR,
    "timm.xcit.XCA": _CHANNELS,
    "yoso.YosoSelfAttention": _HASHED,
}

# Softmaxes that are not over keys, or whose result reads out nothing: they stay as they are.
NOT_SCORES = {
    "MultiscaleDeformableAttention": "weights of sampling points, predicted from the query alone",
    "MHAttentionMap": "a map for segmentation, over all heads and places at once; nothing is read out with it",
    "groupvit.GroupViTAssignAttention": "assigns segments to groups, over the groups",
    "inkling2.Inkling2BlockAttentionResidual": "a residual over depth: weighs the states of earlier blocks of one token",
    "patchtsmixer.PatchTSMixerGatedAttention": "a gate over features",
    "sam2.Sam2MultiScaleAttention": "computed and never used; its attention is on the registry",
    "timm.efficientvim.EfficientViM": "weights of classifiers",
    "timm.efficientvim.EfficientViMDistilled": "weights of classifiers",
    "timm.efficientvim.HSMSSD": "a state space model: which places enter a state",
    "timm.global_context.GlobalContext": "a gate over channels, from a weighted mean of the image",
    "timm.other_pool.LsePlus1d": "pooling by a smooth maximum",
    "timm.other_pool.LsePlus2d": "pooling by a smooth maximum",
    "timm.selective_kernel.SelectiveKernelAttn": "a gate over branches of a convolution",
    "timm.split_attn.RadixSoftmax": "a gate over branches of a convolution",
    "timm.split_attn.SplitAttn": "a gate over branches of a convolution",
    "timm.volo.OutlookAttention": "weights of neighbours, predicted from the query alone",
}


def class_key(cls: type) -> str:
    """`folder.ClassName` in `transformers.models`, `timm.module.ClassName`, `torch.ClassName`, else the full path."""
    parts = cls.__module__.split(".")
    if parts[0] == "timm":
        return f"timm.{parts[-1]}.{cls.__name__}"
    if parts[:2] == ["transformers", "models"]:
        return f"{parts[2]}.{cls.__name__}"
    return f"torch.{cls.__name__}" if parts[0] == "torch" else f"{cls.__module__}.{cls.__qualname__}"


PATCHED = {
    key: Kind("patched", heads=None if heads == "none" else heads, last_only=key in _LAST_ONLY)
    for heads, keys in _PATCHED.items()
    for key in keys.split()
}

USES_REGISTRY = re.compile(r"ALL_ATTENTION_FUNCTIONS\s*(\.get_interface\(|\[)")
_COMPUTES_SOFTMAX = re.compile(
    r"softmax|scaled_dot_product_attention|multi_head_attention_forward|logsumexp", re.IGNORECASE
)
_NAMED_ATTENTION = re.compile(r"Att(entio)?n", re.IGNORECASE)


@functools.cache
def classify(cls: type) -> Kind | None:
    """
    How a module class is reached; `None` for a class that is not an attention class itself.

    Args:
        cls (`type`): Class of a module.
    """
    unknown = None
    for base in cls.__mro__:
        if base is nn.Module or base.__name__ == "PreTrainedModel":
            return unknown
        key = class_key(base)
        if key in PATCHED:
            return PATCHED[key]
        if key in REFUSED:
            return Kind("refused", REFUSED[key])
        if base.__module__.startswith("torch."):
            return unknown
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):  # a class without source: its bases decide
            continue
        if USES_REGISTRY.search(source):
            return Kind("registry")
        if any(key.endswith(name) for name in NOT_SCORES):
            return None
        named = _NAMED_ATTENTION.search(base.__name__) or key.startswith("timm.")
        if unknown is None and named and _COMPUTES_SOFTMAX.search(source):
            unknown = Kind(
                "refused",
                f"{key} computes its attention itself and is not in the table of classes known to hf_sparse_hopfield",
            )
    return unknown


_PATCHED_FOLDERS = frozenset(key.split(".")[0] for key in PATCHED)


def uses_additive_masks(config_class: type) -> bool:
    """Whether the family of a configuration class has attention classes that add the mask to their scores themselves."""
    modules = (base.__module__.split(".") for base in config_class.__mro__)
    return any(parts[:2] == ["transformers", "models"] and parts[2] in _PATCHED_FOLDERS for parts in modules)
