"""Models of text from the transformers package, in small configurations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import foreign
import torch
from torch import Tensor, nn

Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
Row = tuple[str, str, Callable[[], Made]]
Draw = Callable[[], Tensor]
"""Inputs are drawn when a model is built, not when this module is imported."""

WORDS = 1000


def ids(length: int = 16, words: int = WORDS) -> Draw:
    return lambda: torch.randint(words, (2, length))


def noise(*shape: int) -> Draw:
    return lambda: torch.randn(shape)


def mask() -> Tensor:
    return torch.tensor([[1] * 16, [1] * 12 + [0] * 4])


def row(name: str, family: str, model: str, config: dict[str, Any], **inputs: Draw) -> Row:
    """`config` may hold configurations of parts as (class name, settings)."""

    def make() -> Made:
        cls = getattr(foreign.load("transformers"), model)
        made = cls(cls.config_class(**{k: _config(v) for k, v in config.items()}))
        return made, (), {key: draw() for key, draw in inputs.items()}

    return name, family, make


def _config(value: Any) -> Any:
    if isinstance(value, tuple):
        name, settings = value
        return getattr(foreign.load("transformers"), name)(
            **{k: _config(v) for k, v in settings.items()}
        )
    return value


def encoders() -> Iterator[Row]:
    small = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": WORDS,
    }
    text = {"input_ids": ids()}
    narrow = small | {"embedding_size": 32}
    yield row(
        "bert", "encoder", "BertForSequenceClassification", small, **text, attention_mask=mask
    )
    yield row("roberta", "encoder", "RobertaForMaskedLM", small, **text)
    yield row("albert", "encoder", "AlbertModel", narrow, **text)
    yield row("electra", "encoder", "ElectraForPreTraining", narrow, **text)
    distil = {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128, "vocab_size": WORDS}
    yield row("distilbert", "encoder", "DistilBertForQuestionAnswering", distil, **text)
    relative = small | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
    yield row("deberta_v2", "encoder", "DebertaV2Model", relative, **text)
    yield row("mpnet", "encoder", "MPNetModel", small, **text)
    yield row("fnet", "encoder", "FNetModel", small, **text)
    yield row("convbert", "encoder", "ConvBertModel", small | {"embedding_size": 64}, **text)
    yield row("squeezebert", "encoder", "SqueezeBertModel", small | {"embedding_size": 64}, **text)
    tokens = {f"{t}_token_id": i for i, t in enumerate(("pad", "bos", "eos", "cls", "sep"))}
    yield row("modernbert", "encoder", "ModernBertModel", small | tokens, **text)
    yield row("roformer", "encoder", "RoFormerModel", small, **text)
    full = small | {"attention_type": "original_full"}
    yield row("bigbird", "encoder", "BigBirdModel", full, **text)
    size = {"d_model": 64, "n_head": 4, "d_inner": 128, "vocab_size": WORDS}
    funnel = size | {"d_head": 16, "block_sizes": [1, 1, 1]}
    yield row("funnel", "encoder", "FunnelModel", funnel, **text)
    xlnet = size | {"n_layer": 2, "use_mems_eval": False}
    yield row("xlnet", "encoder", "XLNetModel", xlnet, **text)
    protein = small | {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32}
    yield row("esm", "encoder", "EsmForMaskedLM", protein, input_ids=ids(words=30))
    perceiver = {
        "d_latents": 32,
        "d_model": 48,
        "num_latents": 8,
        "num_blocks": 1,
        "num_self_attends_per_block": 2,
        "num_self_attention_heads": 4,
        "num_cross_attention_heads": 4,
    }
    yield row("perceiver", "encoder", "PerceiverModel", perceiver, inputs=noise(2, 10, 48))


def decoders() -> Iterator[Row]:
    small = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 128,
        "vocab_size": WORDS,
        "pad_token_id": 0,
        "use_cache": False,
    }
    text = {"input_ids": ids()}
    yield row("llama", "decoder", "LlamaForCausalLM", small, **text)
    yield row("llama_masked", "decoder", "LlamaForCausalLM", small, **text, attention_mask=mask)
    for name in ("Qwen3", "Gemma2", "Gemma3", "Phi", "Phi3", "StableLm", "Olmo2", "Cohere", "Glm"):
        yield row(name.lower(), "decoder", f"{name}ForCausalLM", small, **text)
    old = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": WORDS, "use_cache": False}
    yield row("gpt2", "decoder", "GPT2LMHeadModel", old, **text)
    yield row("gptj", "decoder", "GPTJForCausalLM", old | {"rotary_dim": 8}, **text)
    yield row("ctrl", "decoder", "CTRLLMHeadModel", old | {"dff": 128}, **text)
    neo = {
        "hidden_size": 64,
        "num_layers": 2,
        "attention_types": [[["global", "local"], 1]],
        "num_heads": 4,
        "vocab_size": WORDS,
        "window_size": 8,
        "use_cache": False,
    }
    yield row("gpt_neo", "decoder", "GPTNeoForCausalLM", neo, **text)
    plain = {k: v for k, v in small.items() if k not in ("num_key_value_heads", "head_dim")}
    yield row("gpt_neox", "decoder", "GPTNeoXForCausalLM", plain, **text)
    yield row("falcon", "decoder", "FalconForCausalLM", plain | {"alibi": False}, **text)
    opt = plain | {"ffn_dim": 128, "word_embed_proj_dim": 64}
    yield row("opt", "decoder", "OPTForCausalLM", opt, **text)
    mpt = {"d_model": 64, "n_layers": 2, "n_heads": 4, "vocab_size": WORDS, "use_cache": False}
    yield row("mpt", "decoder", "MptForCausalLM", mpt | {"max_seq_len": 64}, **text)
    mamba = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": WORDS, "use_cache": False}
    mamba |= {"state_size": 8}
    yield row("mamba", "recurrent", "MambaForCausalLM", mamba, input_ids=ids(8))
    mamba2 = mamba | {"num_heads": 8, "head_dim": 16, "n_groups": 1, "chunk_size": 8}
    yield row("mamba2", "recurrent", "Mamba2ForCausalLM", mamba2, **text)
    # Experts by gathered weights: other ways to run them depend on the data, or lack float64.
    experts = small | {
        "experts_implementation": "batched_mm",
        "num_local_experts": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
    }
    yield row("mixtral", "experts", "MixtralForCausalLM", experts, **text)
    shared = {"moe_intermediate_size": 64, "shared_expert_intermediate_size": 64}
    yield row("qwen2_moe", "experts", "Qwen2MoeForCausalLM", experts | shared, **text)
    yield row("gpt_oss", "experts", "GptOssForCausalLM", experts, **text)
    latent = {k: v for k, v in experts.items() if k != "head_dim"} | {
        "num_key_value_heads": 4,
        "moe_intermediate_size": 32,
        "n_routed_experts": 4,
        "n_group": 1,
        "topk_group": 1,
        "q_lora_rank": 32,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 16,
        "first_k_dense_replace": 1,
    }
    yield row("deepseek_v3", "experts", "DeepseekV3ForCausalLM", latent, **text)


class WithCache(nn.Module):
    """A decoder that takes and returns its cache as pairs of tensors, one pair a layer."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self, input_ids: Tensor, past: tuple[tuple[Tensor, Tensor], ...]
    ) -> tuple[Tensor, tuple[tuple[Tensor, Tensor], ...]]:
        cache = foreign.load("transformers").DynamicCache(past)
        output = self.decoder(input_ids, past_key_values=cache, use_cache=True)
        present = tuple((layer.keys, layer.values) for layer in output.past_key_values.layers)
        return output.logits, present


def caches() -> Iterator[Row]:
    for name, family, make in decoders():
        if name in ("llama", "gpt2"):
            yield f"{name}_prefill", family, _with_cache(make, length=16, past=0)
            yield f"{name}_step", family, _with_cache(make, length=1, past=8)


def _with_cache(make: Callable[[], Made], length: int, past: int) -> Callable[[], Made]:
    def make_with_cache() -> Made:
        decoder, _, _ = make()
        model = WithCache(decoder).eval()
        cache: tuple[tuple[Tensor, Tensor], ...] = ()
        if past > 0:
            with torch.no_grad():
                _, cache = model(ids(past)(), ())
        return model, (ids(length)(), cache), {}

    return make_with_cache


def sequence_to_sequence() -> Iterator[Row]:
    bart = {
        "d_model": 64,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128,
        "vocab_size": WORDS,
        "use_cache": False,
    }
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    t5 = {
        "d_model": 64,
        "d_kv": 16,
        "d_ff": 128,
        "num_layers": 2,
        "num_heads": 4,
        "vocab_size": WORDS,
        "use_cache": False,
    }
    both = {"input_ids": ids(), "decoder_input_ids": ids(8)}
    generation = "ForConditionalGeneration"
    yield row("bart", "encoder-decoder", f"Bart{generation}", bart, **both)
    marian = bart | tokens | {"forced_eos_token_id": 2}
    yield row("marian", "encoder-decoder", "MarianMTModel", marian, **both)
    yield row("m2m_100", "encoder-decoder", f"M2M100{generation}", bart, **both)
    yield row("t5", "encoder-decoder", f"T5{generation}", t5, **both)
    local = t5 | {"local_radius": 4}
    yield row(
        "longt5", "encoder-decoder", f"LongT5{generation}", local, **both, attention_mask=mask
    )
    prophet = {
        "hidden_size": 64,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "num_encoder_attention_heads": 4,
        "num_decoder_attention_heads": 4,
        "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128,
        "vocab_size": WORDS,
        "use_cache": False,
    }
    yield row("prophetnet", "encoder-decoder", f"ProphetNet{generation}", prophet, **both)
    sound = {"max_source_positions": 32, "max_target_positions": 32, "num_mel_bins": 16}
    whisper = bart | tokens | sound | {"suppress_tokens": None, "begin_suppress_tokens": None}
    heard = {"input_features": noise(2, 16, 64), "decoder_input_ids": ids(8)}
    yield row("whisper", "audio", f"Whisper{generation}", whisper, **heard)
    speech = bart | {"input_feat_per_channel": 16, "conv_channels": 32}
    heard = {"input_features": noise(2, 40, 16), "decoder_input_ids": ids(8)}
    yield row("speech_to_text", "audio", f"Speech2Text{generation}", speech, **heard)


def text_models() -> Iterator[Row]:
    yield from encoders()
    yield from decoders()
    yield from caches()
    yield from sequence_to_sequence()
