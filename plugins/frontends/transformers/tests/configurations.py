"""Tiny transformers models with random weights. Tests export some of them, the benchmark exports all."""

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
_CLIP_VISION = {**_CLIP_IMAGE, "model_type": "clip_vision_model", "projection_dim": 32}
_GRID_ROTATION = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
_GATED = {**_BASE, "intermediate_size": 64, "num_key_value_heads": 2}
_GATED_TEXT = {**_GATED, "model_type": "llama"}
_HEADS = {**_GATED, "head_dim": 8}
_GPT2 = {**_TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256}
_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
_MANY_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
_WINDOW = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
_MAMBA = {**_TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "time_step_rank": 4, "expand": 2}
_ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "first_k_dense_replace": 1}
_LATENT = {
    **_GATED,
    **_ROUTED,
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_shared_experts": 1,
}
_LONGCAT = {"expert_ffn_hidden_size": 16, "zero_expert_num": 2}
_T5 = {**_TOKENS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
_MAMBA_HEADS = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 2, "mamba_chunk_size": 4}
_DELTA = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}


class Configuration(NamedTuple):
    """A model to export: config class, config fields, and model class."""

    config: str
    fields: dict[str, Any]
    model: str = "AutoModelForCausalLM"


def make(name: str, seed: int = 0) -> Any:
    """Create the model of a configuration in evaluation mode, with weights that give distinct tokens."""
    torch.manual_seed(seed)
    config, fields, model = CONFIGURATIONS[name]
    made = getattr(transformers, config)(**fields)
    kind = getattr(transformers, model)
    result = (kind.from_config(made) if model.startswith("Auto") else kind(made)).eval()
    with torch.no_grad():
        for parameter in result.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3)
    return result


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
    "minicpm3": Configuration("MiniCPM3Config", {**_GATED, "num_key_value_heads": 4}),
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
    "longcat_flash": Configuration(
        "LongcatFlashConfig",
        {**_LATENT, **_LONGCAT, "num_layers": 1, "ffn_hidden_size": 64, "moe_topk": 2, "head_dim": 4},
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
    "mamba2": Configuration(
        "Mamba2Config",
        {
            **_TOKENS,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_heads": 8,
            "head_dim": 8,
            "state_size": 8,
            "n_groups": 2,
            "chunk_size": 4,
            "time_step_rank": 4,
        },
    ),
    "rwkv": Configuration(
        "RwkvConfig", {**_TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "context_length": 256, "rescale_every": 0}
    ),
    "recurrent_gemma": Configuration(
        "RecurrentGemmaConfig",
        {
            **_TOKENS,
            **_LAYERS,
            "intermediate_size": 64,
            "num_key_value_heads": 2,
            "lru_width": 32,
            "attention_window_size": 8,
            "block_types": ["recurrent", "attention"],
        },
    ),
    "bamba": Configuration("BambaConfig", {**_GATED, **_MAMBA_HEADS, "attn_layer_indices": [1]}),
    "granitemoehybrid": Configuration(
        "GraniteMoeHybridConfig",
        {**_GATED, **_EXPERTS, **_MAMBA_HEADS, "layer_types": ["mamba", "attention"], "shared_intermediate_size": 32},
    ),
    "falcon_h1": Configuration("FalconH1Config", {**_GATED, **_MAMBA_HEADS, "mamba_d_ssm": 64}),
    "zamba": Configuration(
        "ZambaConfig",
        {
            **_GATED,
            "num_key_value_heads": 4,
            "num_hidden_layers": 4,
            "layers_block_type": ["mamba", "hybrid"] * 2,
            "mamba_d_state": 8,
            "mamba_dt_rank": 4,
            "use_mamba_kernels": False,
        },
    ),
    "zamba2": Configuration(
        "Zamba2Config",
        {
            **_GATED,
            "num_key_value_heads": 4,
            "layers_block_type": ["mamba", "hybrid"],
            "mamba_d_state": 8,
            "n_mamba_heads": 4,
            "chunk_size": 4,
            "adapter_rank": 4,
            "use_mamba_kernels": False,
        },
    ),
    "nemotron_h": Configuration(
        "NemotronHConfig",
        {
            **_GATED,
            "head_dim": 8,
            "layers_block_type": ["mamba", "attention"],
            "ssm_state_size": 8,
            "mamba_num_heads": 8,
            "mamba_head_dim": 8,
            "n_groups": 2,
            "chunk_size": 4,
            "use_mamba_kernels": False,
        },
    ),
    "qwen3_next": Configuration(
        "Qwen3NextConfig",
        {**_HEADS, **_MANY_EXPERTS, **_DELTA, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16},
    ),
    "qwen3_5_text": Configuration("Qwen3_5TextConfig", {**_HEADS, **_DELTA}),
    "olmo_hybrid": Configuration("OlmoHybridConfig", {**_GATED, **_DELTA}),
    "lfm2_moe": Configuration(
        "Lfm2MoeConfig",
        {
            **_GATED,
            **_MANY_EXPERTS,
            "moe_intermediate_size": 16,
            "num_dense_layers": 1,
            "layer_types": ["conv", "full_attention"],
        },
    ),
    "minimax": Configuration(
        "MiniMaxConfig", {**_HEADS, **_EXPERTS, "layer_types": _DELTA["layer_types"], "block_size": 4}
    ),
    "kimi_linear": Configuration(
        "KimiLinearConfig",
        {
            **_LATENT,
            "q_lora_rank": None,
            "num_local_experts": 4,
            "layer_types": ["linear_attention", "full_attention"],
            "linear_head_dim": 8,
            "linear_num_heads": 4,
        },
    ),
    "llama4_text": Configuration(
        "Llama4TextConfig",
        {
            **_HEADS,
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "intermediate_size_mlp": 64,
            "attention_chunk_size": 8,
            "layer_types": ["chunked_attention", "full_attention"],
        },
    ),
    "glm4_moe": Configuration("Glm4MoeConfig", {**_HEADS, **_ROUTED}),
    "ernie4_5_moe": Configuration(
        "Ernie4_5_MoeConfig",
        {**_GATED, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 16, "moe_layer_start_index": 1},
    ),
    "dots1": Configuration("Dots1Config", {**_HEADS, **_ROUTED, "n_group": 1, "topk_group": 1, "n_shared_experts": 1}),
    "hunyuan_moe": Configuration("HunYuanMoEV1Config", {**_HEADS, "num_experts": 4, "moe_topk": 2}),
    "flex_olmo": Configuration("FlexOlmoConfig", {**_GATED, **_MANY_EXPERTS}),
    "minimax_m2": Configuration("MiniMaxM2Config", {**_HEADS, **_EXPERTS}),
    "vaultgemma": Configuration("VaultGemmaConfig", {**_HEADS, **_WINDOW, "query_pre_attn_scalar": 8}),
    "ministral": Configuration("MinistralConfig", {**_HEADS, **_WINDOW}),
    "nanochat": Configuration("NanoChatConfig", _GATED),
    "doge": Configuration("DogeConfig", {**_GATED, "keep_window_size": 256}),
    "modernbert_decoder": Configuration(
        "ModernBertDecoderConfig",
        {**_BASE, "intermediate_size": 64, "local_attention": 8, "cls_token_id": 1, "sep_token_id": 2},
    ),
    "gpt_neox_japanese": Configuration("GPTNeoXJapaneseConfig", {**_BASE, "intermediate_multiple_size": 2}),
    "bert_decoder": Configuration(
        "BertConfig", {**_BASE, "intermediate_size": 64, "is_decoder": True}, "BertLMHeadModel"
    ),
    "ctrl": Configuration(
        "CTRLConfig", {**_TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "dff": 64, "n_positions": 256}
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
    "llava": Configuration(
        "LlavaConfig",
        {"vision_config": _CLIP_VISION, "text_config": _GATED_TEXT, "image_token_id": 98},
        "LlavaForConditionalGeneration",
    ),
    "qwen2_vl": Configuration(
        "Qwen2VLConfig",
        {
            "text_config": {**_GATED, "rope_parameters": _GRID_ROTATION},
            "vision_config": {"embed_dim": 16, "depth": 1, "num_heads": 2, "hidden_size": 32, "patch_size": 4},
            "image_token_id": 98,
            "video_token_id": 97,
            "vision_start_token_id": 96,
            "vision_end_token_id": 95,
        },
        "Qwen2VLForConditionalGeneration",
    ),
    "t5": Configuration("T5Config", _T5, "T5ForConditionalGeneration"),
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
    "mt5": Configuration("MT5Config", _T5, "MT5ForConditionalGeneration"),
    "umt5": Configuration("UMT5Config", _T5, "UMT5ForConditionalGeneration"),
    "switch_transformers": Configuration(
        "SwitchTransformersConfig",
        {
            **_T5,
            "num_decoder_layers": 2,
            "num_experts": 4,
            "num_sparse_encoder_layers": 1,
            "num_sparse_decoder_layers": 1,
        },
        "SwitchTransformersForConditionalGeneration",
    ),
    "longt5": Configuration(
        "LongT5Config", {**_T5, "encoder_attention_type": "local", "local_radius": 4}, "LongT5ForConditionalGeneration"
    ),
    "mbart": Configuration("MBartConfig", {**_BART, "decoder_start_token_id": 0}, "MBartForConditionalGeneration"),
    "m2m_100": Configuration("M2M100Config", {**_BART, "decoder_start_token_id": 0}, "M2M100ForConditionalGeneration"),
    "nllb_moe": Configuration(
        "NllbMoeConfig",
        {
            **_BART,
            "decoder_start_token_id": 0,
            "num_experts": 4,
            "expert_capacity": 64,
            "encoder_sparse_step": 2,
            "decoder_sparse_step": 2,
        },
        "NllbMoeForConditionalGeneration",
    ),
    "blenderbot": Configuration(
        "BlenderbotConfig", {**_BART, "decoder_start_token_id": 1}, "BlenderbotForConditionalGeneration"
    ),
    "blenderbot_small": Configuration(
        "BlenderbotSmallConfig", {**_BART, "decoder_start_token_id": 1}, "BlenderbotSmallForConditionalGeneration"
    ),
    "plbart": Configuration("PLBartConfig", {**_BART, "decoder_start_token_id": 0}, "PLBartForConditionalGeneration"),
    "mvp": Configuration("MvpConfig", {**_BART, "decoder_start_token_id": 0}, "MvpForConditionalGeneration"),
    "led": Configuration(
        "LEDConfig",
        {
            **_BART,
            "decoder_start_token_id": 0,
            "max_encoder_position_embeddings": 128,
            "max_decoder_position_embeddings": 128,
            "attention_window": 8,
        },
        "LEDForConditionalGeneration",
    ),
    "pegasus_x": Configuration(
        "PegasusXConfig",
        {**_BART, "decoder_start_token_id": 0, "block_size": 8, "num_global_tokens": 4},
        "PegasusXForConditionalGeneration",
    ),
    "fsmt": Configuration(
        "FSMTConfig",
        {**_BART, "src_vocab_size": 99, "tgt_vocab_size": 99, "langs": ["en", "de"], "decoder_start_token_id": 2},
        "FSMTForConditionalGeneration",
    ),
    "t5gemma": Configuration(
        "T5GemmaConfig",
        {
            **_TOKENS,
            "encoder": {**_HEADS, **_WINDOW, "query_pre_attn_scalar": 8},
            "decoder": {**_HEADS, **_WINDOW, "query_pre_attn_scalar": 8, "cross_attention_hidden_size": 32},
            "decoder_start_token_id": 1,
        },
        "T5GemmaForConditionalGeneration",
    ),
    "speech_to_text": Configuration(
        "Speech2TextConfig",
        {
            **_BART,
            "input_feat_per_channel": 16,
            "input_channels": 1,
            "conv_channels": 32,
            "max_source_positions": 200,
            "max_target_positions": 100,
            "decoder_start_token_id": 1,
        },
        "Speech2TextForConditionalGeneration",
    ),
    "moonshine": Configuration(
        "MoonshineConfig",
        {
            **_TOKENS,
            "hidden_size": 32,
            "intermediate_size": 64,
            "encoder_num_hidden_layers": 2,
            "decoder_num_hidden_layers": 2,
            "encoder_num_attention_heads": 4,
            "decoder_num_attention_heads": 4,
            "max_position_embeddings": 194,
            "decoder_start_token_id": 1,
        },
        "MoonshineForConditionalGeneration",
    ),
}
