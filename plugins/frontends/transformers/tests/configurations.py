"""Configurations of transformers, tiny and with random weights. Tests export some, the benchmark exports all."""

from typing import Any, NamedTuple

import torch
import transformers

_TOKENS = {"vocab_size": 99, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 256}
_BASE = {**_TOKENS, **_SIZES}
_LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_CLIP_TEXT = {**_TOKENS, **_LAYERS, "intermediate_size": 64, "max_position_embeddings": 64}
_CLIP_IMAGE = {**_LAYERS, "intermediate_size": 64, "image_size": 32, "patch_size": 8}
_BART = {
    **_TOKENS,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 128,
}
_GATED = {**_BASE, "intermediate_size": 64, "num_key_value_heads": 2}
_HEADS = {**_GATED, "head_dim": 8}
_GPT2 = {**_TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256}
_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
_MANY_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
_WINDOW = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
_MAMBA = {**_TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "time_step_rank": 4, "expand": 2}
_LATENT = {
    **_GATED,
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
}


class Configuration(NamedTuple):
    """A model to export: the class of its config, fields of that, and the class of the model."""

    config: str
    fields: dict[str, Any]
    model: str = "AutoModelForCausalLM"


def make(name: str, seed: int = 0) -> Any:
    """The model of a configuration in evaluation mode, with weights that give distinct tokens."""
    torch.manual_seed(seed)
    config, fields, model = CONFIGURATIONS[name]
    made = getattr(transformers, config)(**fields)
    kind = getattr(transformers, model)
    found = (kind.from_config(made) if model.startswith("Auto") else kind(made)).eval()
    with torch.no_grad():
        for parameter in found.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3)
    return found


CONFIGURATIONS = {
    "llama": Configuration("LlamaConfig", _GATED),
    "mistral": Configuration("MistralConfig", {**_GATED, "sliding_window": 8}),
    "qwen2": Configuration("Qwen2Config", _GATED),
    "qwen3": Configuration("Qwen3Config", _HEADS),
    "phi3": Configuration("Phi3Config", _GATED),
    "phi": Configuration("PhiConfig", _GATED),
    "gemma": Configuration("GemmaConfig", _HEADS),
    "gemma2": Configuration("Gemma2Config", {**_HEADS, "sliding_window": 8, "query_pre_attn_scalar": 8}),
    "gemma3_text": Configuration("Gemma3TextConfig", {**_HEADS, **_WINDOW, "query_pre_attn_scalar": 8}),
    "granite": Configuration("GraniteConfig", _GATED),
    "smollm3": Configuration("SmolLM3Config", _GATED),
    "olmo": Configuration("OlmoConfig", _GATED),
    "olmo2": Configuration("Olmo2Config", _GATED),
    "olmo3": Configuration("Olmo3Config", {**_GATED, "sliding_window": 8}),
    "gpt_neox": Configuration("GPTNeoXConfig", {**_BASE, "intermediate_size": 64}),
    "gpt2": Configuration("GPT2Config", _GPT2),
    "gptj": Configuration("GPTJConfig", {**_GPT2, "rotary_dim": 4}),
    "gpt_neo": Configuration(
        "GPTNeoConfig",
        {
            **_TOKENS,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "max_position_embeddings": 256,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 8,
        },
    ),
    "gpt_bigcode": Configuration("GPTBigCodeConfig", _GPT2),
    "opt": Configuration("OPTConfig", {**_BASE, "ffn_dim": 64, "word_embed_proj_dim": 32}),
    "bloom": Configuration("BloomConfig", {**_TOKENS, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "falcon": Configuration("FalconConfig", {**_BASE, "num_kv_heads": 2, "new_decoder_architecture": True}),
    "mpt": Configuration("MptConfig", {**_TOKENS, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 256}),
    "stablelm": Configuration("StableLmConfig", _GATED),
    "starcoder2": Configuration("Starcoder2Config", _GATED),
    "cohere": Configuration("CohereConfig", _GATED),
    "cohere2": Configuration("Cohere2Config", {**_GATED, **_WINDOW}),
    "codegen": Configuration("CodeGenConfig", {**_GPT2, "rotary_dim": 4, "n_ctx": 256}),
    "nemotron": Configuration("NemotronConfig", _HEADS),
    "glm": Configuration("GlmConfig", _HEADS),
    "glm4": Configuration("Glm4Config", _HEADS),
    "helium": Configuration("HeliumConfig", _HEADS),
    "exaone4": Configuration("Exaone4Config", {**_GATED, **_WINDOW}),
    "ernie4_5": Configuration("Ernie4_5Config", _HEADS),
    "seed_oss": Configuration("SeedOssConfig", _HEADS),
    "hunyuan": Configuration("HunYuanDenseV1Config", _HEADS),
    "persimmon": Configuration("PersimmonConfig", {**_BASE, "intermediate_size": 64}),
    "xglm": Configuration(
        "XGLMConfig",
        {
            **_TOKENS,
            "d_model": 32,
            "ffn_dim": 64,
            "num_layers": 2,
            "attention_heads": 4,
            "max_position_embeddings": 256,
        },
    ),
    "biogpt": Configuration("BioGptConfig", {**_BASE, "intermediate_size": 64}),
    "mixtral": Configuration("MixtralConfig", {**_GATED, **_EXPERTS}),
    "qwen2_moe": Configuration(
        "Qwen2MoeConfig",
        {**_GATED, **_MANY_EXPERTS, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 32},
    ),
    "qwen3_moe": Configuration("Qwen3MoeConfig", {**_HEADS, **_MANY_EXPERTS, "moe_intermediate_size": 16}),
    "olmoe": Configuration("OlmoeConfig", {**_GATED, **_MANY_EXPERTS}),
    "granitemoe": Configuration("GraniteMoeConfig", {**_GATED, **_EXPERTS}),
    "phimoe": Configuration("PhimoeConfig", {**_GATED, **_EXPERTS}),
    "gpt_oss": Configuration("GptOssConfig", {**_HEADS, **_EXPERTS, "sliding_window": 8}),
    "deepseek_v3": Configuration("DeepseekV3Config", {**_LATENT, "n_group": 2, "topk_group": 1}),
    "deepseek_v2": Configuration("DeepseekV2Config", _LATENT),
    "lfm2": Configuration("Lfm2Config", {**_GATED, "layer_types": ["conv", "full_attention"]}),
    "minicpm3": Configuration("MiniCPM3Config", _GATED),
    "dbrx": Configuration(
        "DbrxConfig",
        {
            **_TOKENS,
            "d_model": 32,
            "n_layers": 2,
            "n_heads": 4,
            "max_seq_len": 256,
            "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10000.0},
            "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2},
        },
    ),
    "arcee": Configuration("ArceeConfig", _GATED),
    "apertus": Configuration("ApertusConfig", _GATED),
    "bitnet": Configuration("BitNetConfig", _GATED),
    "diffllama": Configuration("DiffLlamaConfig", _GATED),
    "jetmoe": Configuration(
        "JetMoeConfig",
        {
            **_TOKENS,
            **_EXPERTS,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_key_value_heads": 2,
            "kv_channels": 8,
            "max_position_embeddings": 256,
        },
    ),
    "mamba": Configuration("MambaConfig", _MAMBA),
    "falcon_mamba": Configuration("FalconMambaConfig", _MAMBA),
    "jamba": Configuration(
        "JambaConfig",
        {
            **_GATED,
            "num_hidden_layers": 2,
            "num_experts": 4,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "mamba_d_state": 8,
            "mamba_dt_rank": 4,
            "use_mamba_kernels": False,
        },
    ),
    "bert": Configuration("BertConfig", {**_BASE, "intermediate_size": 64}, "BertForTokenClassification"),
    "distilbert": Configuration(
        "DistilBertConfig",
        {**_TOKENS, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
        "DistilBertForMaskedLM",
    ),
    "roberta": Configuration(
        "RobertaConfig", {**_BASE, "intermediate_size": 64, "type_vocab_size": 1}, "RobertaForSequenceClassification"
    ),
    "modernbert": Configuration(
        "ModernBertConfig", {**_BASE, "intermediate_size": 64, "local_attention": 8}, "ModernBertModel"
    ),
    "electra": Configuration(
        "ElectraConfig", {**_BASE, "embedding_size": 32, "intermediate_size": 64}, "ElectraForQuestionAnswering"
    ),
    "vit": Configuration(
        "ViTConfig",
        {**_LAYERS, "intermediate_size": 64, "image_size": 32, "patch_size": 8},
        "ViTForImageClassification",
    ),
    "clip": Configuration("CLIPConfig", {"text_config": _CLIP_TEXT, "vision_config": _CLIP_IMAGE}, "CLIPModel"),
    "wav2vec2": Configuration(
        "Wav2Vec2Config",
        {
            **_TOKENS,
            **_LAYERS,
            "intermediate_size": 64,
            "conv_dim": [32, 32],
            "conv_kernel": [10, 3],
            "conv_stride": [5, 2],
            "num_feat_extract_layers": 2,
            "num_conv_pos_embedding_groups": 4,
        },
        "Wav2Vec2ForCTC",
    ),
    "t5": Configuration(
        "T5Config",
        {**_TOKENS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0},
        "T5ForConditionalGeneration",
    ),
    "bart": Configuration("BartConfig", _BART, "BartForConditionalGeneration"),
    "marian": Configuration("MarianConfig", {**_BART, "decoder_start_token_id": 0}, "MarianMTModel"),
    "pegasus": Configuration(
        "PegasusConfig", {**_BART, "decoder_start_token_id": 0}, "PegasusForConditionalGeneration"
    ),
    "whisper": Configuration(
        "WhisperConfig",
        {
            **_BART,
            "num_mel_bins": 16,
            "max_source_positions": 20,
            "max_target_positions": 100,
            "decoder_start_token_id": 1,
        },
        "WhisperForConditionalGeneration",
    ),
}
