"""Models of images, sound, image with text, and time series from the transformers package."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from catalogue_text import WORDS, Row, ids, noise, row

SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "image_size": 32,
    "patch_size": 8,
}
DETR = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "num_queries": 10,
}
PYRAMID = {
    "depths": [1, 1, 1, 1],
    "hidden_sizes": [16, 32, 48, 64],
    "num_attention_heads": [1, 2, 3, 4],
    "decoder_hidden_size": 32,
}
STAGES = ["stage1", "stage2", "stage3", "stage4"]


def classifiers() -> Iterator[Row]:
    image = {"pixel_values": noise(2, 3, 32, 32)}
    yield row("vit", "vision", "ViTForImageClassification", SMALL, **image)
    yield row("deit", "vision", "DeiTForImageClassificationWithTeacher", SMALL, **image)
    yield row("beit", "vision", "BeitForImageClassification", SMALL, **image)
    yield row("dinov2", "vision", "Dinov2Model", SMALL | {"mlp_ratio": 2}, **image)
    swin = {"image_size": 32, "patch_size": 2, "embed_dim": 32, "window_size": 4}
    swin |= {"depths": [2, 2], "num_heads": [2, 4]}
    yield row("swin", "vision", "SwinModel", swin, **image)
    yield row("swinv2", "vision", "Swinv2Model", swin, **image)
    video = {"pixel_values": noise(1, 4, 3, 32, 32)}
    videomae = SMALL | {"num_frames": 4, "tubelet_size": 2}
    yield row("videomae", "video", "VideoMAEModel", videomae, **video)
    yield row("timesformer", "video", "TimesformerModel", SMALL | {"num_frames": 4}, **video)


def dense() -> Iterator[Row]:
    """Detection, segmentation, depth, super-resolution: several outputs, or large ones."""
    image = {"pixel_values": noise(1, 3, 64, 64)}
    backbone = {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 48, 64], "embedding_size": 16}
    resnet = ("ResNetConfig", backbone | {"out_features": ["stage4"]})
    detr = DETR | {"use_timm_backbone": False, "backbone": None, "num_labels": 5}
    yield row(
        "detr", "detection", "DetrForObjectDetection", detr | {"backbone_config": resnet}, **image
    )
    rt_detr = DETR | {
        "backbone_config": ("RTDetrResNetConfig", backbone | {"out_features": STAGES[1:]}),
        "encoder_hidden_dim": 32,
        "encoder_in_channels": [32, 48, 64],
        "decoder_in_channels": [32, 32, 32],
        "num_labels": 5,
        "anchor_image_size": None,
    }
    yield row("rt_detr", "detection", "RTDetrForObjectDetection", rt_detr, **image)
    yolos = SMALL | {"image_size": [64, 64], "num_detection_tokens": 10, "num_labels": 5}
    yield row("yolos", "detection", "YolosForObjectDetection", yolos, **image)
    labels = {"num_labels": 10}
    yield row(
        "segformer",
        "segmentation",
        "SegformerForSemanticSegmentation",
        PYRAMID | labels,
        **image,
    )
    convnext = {"depths": [1, 1, 2, 1], "hidden_sizes": [16, 32, 48, 64], "out_features": STAGES}
    upernet = labels | {
        "backbone_config": ("ConvNextConfig", convnext),
        "hidden_size": 32,
        "auxiliary_channels": 16,
        "auxiliary_in_channels": 48,
    }
    # The pooling pyramid has an image of one pixel: two images give batch norms two values.
    pair = {"pixel_values": noise(2, 3, 64, 64)}
    yield row("upernet", "segmentation", "UperNetForSemanticSegmentation", upernet, **pair)
    windows = {"image_size": 64, "patch_size": 4, "embed_dim": 16, "window_size": 2}
    windows |= {"depths": [1, 1, 1, 1], "num_heads": [1, 2, 4, 8], "out_features": STAGES}
    maskformer = {
        "backbone_config": ("SwinConfig", windows),
        "decoder_config": ("DetrConfig", detr | {"backbone_config": resnet}),
        "fpn_feature_size": 32,
        "mask_feature_size": 32,
    }
    yield row(
        "maskformer", "segmentation", "MaskFormerForInstanceSegmentation", maskformer, **image
    )
    mask2former = {
        "backbone_config": ("SwinConfig", windows),
        "feature_size": 32,
        "mask_feature_size": 32,
        "hidden_dim": 32,
        "encoder_feedforward_dim": 64,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "num_attention_heads": 4,
        "dim_feedforward": 64,
        "num_queries": 10,
    }
    yield row(
        "mask2former", "segmentation", "Mask2FormerForUniversalSegmentation", mask2former, **image
    )
    yield row("glpn", "depth", "GLPNForDepthEstimation", PYRAMID, **image)
    dpt = SMALL | {
        "num_hidden_layers": 4,
        "backbone_out_indices": [0, 1, 2, 3],
        "neck_hidden_sizes": [16, 32, 32, 32],
        "fusion_hidden_size": 32,
        "is_hybrid": False,
    }
    yield row("dpt", "depth", "DPTForDepthEstimation", dpt, pixel_values=noise(1, 3, 32, 32))
    swin2sr = {"image_size": 16, "embed_dim": 24, "depths": [2], "num_heads": [2]}
    swin2sr |= {"window_size": 4, "upscale": 2}
    yield row(
        "swin2sr",
        "super-resolution",
        "Swin2SRForImageSuperResolution",
        swin2sr,
        pixel_values=noise(1, 3, 16, 16),
    )


def audio() -> Iterator[Row]:
    wave = {"input_values": noise(2, 2000)}
    small = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "conv_dim": [16, 16, 16],
        "conv_stride": [5, 2, 2],
        "conv_kernel": [10, 3, 3],
        "num_feat_extract_layers": 3,
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 2,
        "vocab_size": 32,
    }
    yield row("wav2vec2", "audio", "Wav2Vec2ForCTC", small, **wave)
    yield row("wavlm", "audio", "WavLMModel", small, **wave)
    yield row("sew", "audio", "SEWModel", small | {"squeeze_factor": 2}, **wave)
    ast = {k: v for k, v in SMALL.items() if k != "image_size"}
    ast |= {"frequency_stride": 8, "time_stride": 8, "max_length": 32, "num_mel_bins": 16}
    yield row("ast", "audio", "ASTForAudioClassification", ast, input_values=noise(2, 32, 16))
    clap = {
        "spec_size": 64,
        "num_mel_bins": 16,
        "patch_size": 4,
        "patch_stride": [4, 4],
        "hidden_size": 64,
        "patch_embeds_hidden_size": 16,
        "depths": [1, 1],
        "num_attention_heads": [2, 4],
        "window_size": 4,
        "num_hidden_layers": 2,
    }
    yield row("clap", "audio", "ClapAudioModel", clap, input_features=noise(1, 1, 256, 16))
    vocoder = {
        "model_in_dim": 16,
        "upsample_initial_channel": 32,
        "upsample_rates": [4, 2],
        "upsample_kernel_sizes": [8, 4],
        "resblock_kernel_sizes": [3, 5],
        "resblock_dilation_sizes": [[1, 3], [1, 3]],
    }
    yield row("hifigan", "audio", "SpeechT5HifiGan", vocoder, spectrogram=noise(20, 16))


def image_and_text() -> Iterator[Row]:
    words = {"vocab_size": WORDS, "bos_token_id": WORDS - 2, "eos_token_id": WORDS - 1}
    narrow = {"hidden_size": 32, "intermediate_size": 64}
    vision = SMALL | narrow
    text = {k: v for k, v in vision.items() if k not in ("image_size", "patch_size")} | words
    towers = {"text_config": text, "vision_config": vision}
    projected = towers | {"projection_dim": 32}
    both = {"input_ids": ids(), "pixel_values": noise(2, 3, 32, 32)}
    yield row("clip", "vision-language", "CLIPModel", projected, **both)
    yield row("siglip", "vision-language", "SiglipModel", towers, **both)
    blip = projected | {"text_config": text | {"encoder_hidden_size": 32}}
    yield row("blip", "vision-language", "BlipForConditionalGeneration", blip, **both)
    git = {k: v for k, v in SMALL.items() if k not in ("image_size", "patch_size")}
    git |= {"vocab_size": WORDS, "vision_config": vision, "use_cache": False}
    yield row("git", "vision-language", "GitForCausalLM", git, **both)
    clipseg = projected | {
        "extract_layers": [0, 1],
        "reduce_dim": 16,
        "decoder_num_attention_heads": 4,
        "decoder_intermediate_size": 32,
        "conditional_layer": 0,
    }
    yield row("clipseg", "vision-language", "CLIPSegForImageSegmentation", clipseg, **both)
    yield row("owlvit", "vision-language", "OwlViTForObjectDetection", projected, **both)


def series() -> Iterator[Row]:
    mixer = {"num_input_channels": 3, "context_length": 32, "patch_length": 8, "patch_stride": 8}
    mixer |= {"prediction_length": 8, "d_model": 16, "num_layers": 2}
    past = {"past_values": noise(2, 32, 3)}
    yield row("patchtsmixer", "time series", "PatchTSMixerForPrediction", mixer, **past)
    timesfm = {
        "patch_length": 8,
        "context_length": 32,
        "horizon_length": 8,
        "hidden_size": 32,
        "intermediate_size": 32,
        "head_dim": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "freq_size": 3,
    }
    past = {"past_values": noise(2, 32)}
    yield row("timesfm", "time series", "TimesFmModelForPrediction", timesfm, **past)
    decision = {"state_dim": 5, "act_dim": 3, "hidden_size": 32, "n_layer": 2, "n_head": 4}
    yield row(
        "decision_transformer",
        "control",
        "DecisionTransformerModel",
        decision | {"max_ep_len": 32},
        states=noise(2, 6, 5),
        actions=noise(2, 6, 3),
        rewards=noise(2, 6, 1),
        returns_to_go=noise(2, 6, 1),
        timesteps=lambda: torch.arange(6).repeat(2, 1),
    )


def media_models() -> Iterator[Row]:
    yield from classifiers()
    yield from dense()
    yield from audio()
    yield from image_and_text()
    yield from series()
