"""Models without generation, and encoder-decoders: example inputs from config and signature, and graphs."""

import inspect

import numpy as np
import pytest
from configurations import CONFIGURATIONS, make

import tenonnx as tx
import tenonnx_transformers
from tenonnx_transformers.calls import inputs_for
from tenonnx_transformers.encoder_decoders import encoder_decoder_parts
from tenonnx_transformers.sources import Source, source_of
from tenonnx_transformers.tasks import TASKS, class_for, task_named, task_of


def test_the_list_has_forty_decoders_and_the_other_kinds():
    decoders = [name for name, each in CONFIGURATIONS.items() if each.model == "AutoModelForCausalLM"]
    assert len(decoders) >= 40
    assert {"t5", "bart", "whisper", "bert", "vit", "clip", "wav2vec2"} <= CONFIGURATIONS.keys()


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("bert", {"input_ids": (2, 5), "attention_mask": (2, 5), "token_type_ids": (2, 5)}),
        ("roberta", {"input_ids": (2, 5), "attention_mask": (2, 5)}),
        ("vit", {"pixel_values": (2, 3, 32, 32)}),
        ("clip", {"input_ids": (2, 5), "attention_mask": (2, 5), "pixel_values": (3, 3, 32, 32)}),
        ("wav2vec2", {"input_values": (2, 10000)}),
        ("whisper", {"input_features": (2, 16, 40)}),
    ],
)
def test_inputs_follow_from_config_and_signature(name, inputs):
    result = inputs_for(source_of(make(name)), batch=2, length=5)
    assert {key: tuple(tensor.shape) for key, tensor in result.items()} == inputs


@pytest.mark.parametrize(
    ("class_name", "task"),
    [
        ("LlamaForCausalLM", "text-generation"),
        ("T5ForConditionalGeneration", "text2text-generation"),
        ("WhisperForConditionalGeneration", "automatic-speech-recognition"),
        ("BertForQuestionAnswering", "question-answering"),
        ("Wav2Vec2ForCTC", "speech-recognition-ctc"),
        ("CLIPModel", "zero-shot-image-classification"),
        ("BertModel", "feature-extraction"),
    ],
)
def test_tasks_follow_from_the_class(class_name, task):
    assert task_of(class_name).name == task


def test_a_task_names_the_class_of_a_model_type():
    assert class_for(TASKS["fill-mask"], "bert") == "BertForMaskedLM"
    with pytest.raises(tx.InvalidCall, match="no head") as error:
        class_for(TASKS["text2text-generation"], "bert")
    assert "fill-mask" in str(error.value)


def test_names_of_an_encoder_with_a_decoder():
    parts = encoder_decoder_parts(source_of(make("t5")))
    assert [part.name for part in parts[:3]] == ["encoder_model", "decoder_model", "decoder_with_past_model"]
    assert list(parts.first.examples) == ["encoder_attention_mask", "input_ids", "encoder_hidden_states"]
    assert "past_key_values.1.encoder.value" in parts.step.examples
    assert parts.step.dims["past_key_values.0.decoder.key"] == {0: "batch_size", 2: "past_sequence_length"}
    assert parts.step.dims["past_key_values.0.encoder.key"] == {0: "batch_size", 2: "encoder_sequence_length"}
    assert [name for name in parts.step.outputs if "encoder" in name] == []


def test_a_folder_of_a_classifier_is_read_as_one_graph(tmp_path):
    model = make("bert")
    model.save_pretrained(tmp_path / "bert")
    graph = tx.load(tmp_path / "bert")
    assert [value.name for value in graph.outputs] == ["logits"]
    inputs = inputs_for(source_of(model), batch=3, length=9)
    result = graph.run({name: tensor.numpy() for name, tensor in inputs.items()})
    assert np.allclose(result["logits"], model(**inputs).logits.detach(), atol=1e-4)


def test_a_folder_of_text_to_text_is_refused_as_one_graph(tmp_path):
    make("t5").save_pretrained(tmp_path / "t5")
    with pytest.raises(tx.NotRepresentable, match="several graphs") as error:
        tx.load(tmp_path / "t5")
    assert "decoder_with_past_model" in str(error.value)


def test_an_encoder_with_a_decoder_of_text(tmp_path):
    done = tenonnx_transformers.export(make("t5"), tmp_path / "out")
    assert sorted(done.graphs) == ["decoder_model.onnx", "decoder_with_past_model.onnx", "encoder_model.onnx"]
    (generated,) = done.generated
    assert generated.equal == generated.tokens == 192
    assert done.max_difference < 1e-4


def test_layouts_reject_unsupported_models(tmp_path):
    for layout in ("genai", "transformers.js"):
        with pytest.raises(tx.NotRepresentable, match="layer 0") as error:
            tenonnx_transformers.export(make("t5"), tmp_path / "out", layout=layout)
        assert "t5" in str(error.value)


def test_the_signature_matches_the_documentation():
    names = set(inspect.signature(tenonnx_transformers.export).parameters)
    assert {"layout", "task", "trust", "verify", "atol", "rtol", "opset_version", "progress"} <= names


def test_an_encoder_that_shortens_speech_gives_states_of_its_own_length():
    model = make("speech_to_text").eval()
    parts = encoder_decoder_parts(Source(model, task_named("automatic-speech-recognition"), None))
    assert parts.encoder.dims["input_features"] == {0: "batch_size", 1: "num_samples"}
    assert parts.first.dims["encoder_hidden_states"] == {0: "batch_size", 1: "encoder_sequence_length"}
    crossed = next(state for state in parts.states if state.kind == "encoder.key")
    assert crossed.axes == {0: "batch_size", 2: "encoder_sequence_length"}


def test_a_mask_that_an_encoder_computes_is_its_output():
    model = make("moonshine").eval()
    parts = encoder_decoder_parts(Source(model, task_named("automatic-speech-recognition"), None))
    hidden, mask = parts.encoder.call(parts.encoder.examples)
    assert mask.shape == hidden.shape[:2]
    assert parts.encoder.outputs == ["last_hidden_state", "encoder_attention_mask"]
    assert parts.first.dims["encoder_attention_mask"] == parts.first.dims["encoder_hidden_states"]


def test_a_decoder_reads_the_encoder_outputs_of_its_own_class():
    model = make("nllb_moe").eval()
    parts = encoder_decoder_parts(Source(model, task_named("text2text-generation"), None))
    logits = parts.first.call(parts.first.examples)[0]
    assert logits.shape[-1] == model.config.vocab_size
