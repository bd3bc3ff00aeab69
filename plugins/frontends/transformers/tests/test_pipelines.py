"""Pipelines in one file, from image, text or audio to labels or text, compared with those of transformers."""

import io
import json
import warnings

import numpy as np
import pytest
import sentencepiece
import tokenizers
import torch
import transformers
from click.testing import CliRunner
from PIL import Image
from tokenizers import models, normalizers, pre_tokenizers, processors

import tenonnx as tx
import tenonnx_transformers
from tenonnx_cli.program import program

NAMES = {k: f"class {k}" for k in range(7)}
_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


@pytest.fixture
def photo():
    """An image and its PNG bytes."""
    drawn = np.random.default_rng(0)
    small = Image.fromarray(drawn.integers(0, 256, (6, 8, 3)).astype(np.uint8))
    image = small.resize((70, 53), Image.Resampling.BICUBIC)
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return image, np.frombuffer(stream.getvalue(), np.uint8)


def whole_of(model, saved, folder, *options):
    """Export a model with its saved preprocessor to one file, by the command line."""
    saved.save_pretrained(folder)
    tenonnx_transformers.export(model, folder / "out", verify=False)
    model.config.save_pretrained(folder)
    arguments = ["compose", str(folder), str(folder / "out" / "model.onnx"), "-o", str(folder / "whole.onnx"), *options]
    done = CliRunner().invoke(program, arguments)
    assert done.exit_code == 0, done.output
    return tx.load(folder / "whole.onnx")


def seeded(kind, config):
    torch.manual_seed(0)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # with small weights, classes would differ by less than rounding
            parameter.mul_(4 if parameter.ndim > 1 else 1)
    return model


def test_image_classification(photo, tmp_path):
    image, data = photo
    model = seeded(
        transformers.ViTForImageClassification,
        transformers.ViTConfig(image_size=32, patch_size=8, id2label=NAMES, **_SIZES),
    )
    processor = transformers.ViTImageProcessorPil(size={"height": 32, "width": 32})
    pipeline = transformers.pipeline("image-classification", model=model, image_processor=processor)
    expected = pipeline(image, top_k=5)
    whole = whole_of(model, processor, tmp_path, "--encoded", "--decode", "classification")
    result = whole.run({"image": data})
    assert result["labels"][0].tolist() == [each["label"] for each in expected]
    np.testing.assert_allclose(result["scores"][0], [each["score"] for each in expected], rtol=1e-3)


def test_object_detection(photo, tmp_path):
    image, data = photo
    config = transformers.YolosConfig(
        image_size=[32, 48], patch_size=8, num_detection_tokens=9, id2label=NAMES, **_SIZES
    )
    model = seeded(transformers.YolosForObjectDetection, config)
    processor = transformers.YolosImageProcessorPil(size={"height": 32, "width": 48})
    pipeline = transformers.pipeline("object-detection", model=model, image_processor=processor)
    expected = pipeline(image, threshold=0.05)
    assert expected
    whole = whole_of(model, processor, tmp_path, "--encoded", "--decode", "detection", "--threshold", "0.05")
    result = whole.run({"image": data})
    order = np.argsort(-result["scores"], kind="stable")
    expected.sort(key=lambda each: -each["score"])
    assert result["labels"][order].tolist() == [each["label"] for each in expected]
    np.testing.assert_allclose(result["scores"][order], [each["score"] for each in expected], rtol=1e-3)
    boxes = [[each["box"][key] for key in ("xmin", "ymin", "xmax", "ymax")] for each in expected]
    np.testing.assert_allclose(result["boxes"][order], boxes, atol=1.01)  # the pipeline truncates to integers


def test_image_segmentation(photo, tmp_path):
    image, data = photo
    config = transformers.SegformerConfig(
        image_size=64,
        depths=[1, 1, 1, 1],
        hidden_sizes=[8, 8, 16, 16],
        num_attention_heads=[1, 1, 2, 2],
        decoder_hidden_size=16,
        id2label=NAMES,
    )
    model = seeded(transformers.SegformerForSemanticSegmentation, config)
    processor = transformers.SegformerImageProcessorPil(size={"height": 64, "width": 64})
    pipeline = transformers.pipeline("image-segmentation", model=model, image_processor=processor)
    expected = {each["label"]: np.asarray(each["mask"]) > 0 for each in pipeline(image)}
    whole = whole_of(model, processor, tmp_path, "--encoded", "--decode", "segmentation", "--colors")
    result = whole.run({"image": data})
    classes = result["segmentation"][0]
    assert classes.shape == (53, 70)
    assert len(expected) > 1
    alike = np.mean([expected[NAMES[k]][classes == k].mean() for k in np.unique(classes)])
    assert alike > 0.99  # rounding decides about pixels between two classes
    assert result["colors"].shape == (1, 53, 70, 3)


def test_text_classification(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "##s", "the", "fox", "!", "bad"]
    fast = tokenizers.Tokenizer(models.WordPiece({word: k for k, word in enumerate(words)}, unk_token="[UNK]"))
    fast.normalizer, fast.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    fast.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    named = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=fast, **named)
    config = transformers.BertConfig(vocab_size=len(words), id2label=NAMES, max_position_embeddings=64, **_SIZES)
    model = seeded(transformers.BertForSequenceClassification, config)
    texts = ["Hello worlds!", "the bad fox the bad fox", "unknown \u4f60", ""]
    pipeline = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=5)
    expected = pipeline(texts)
    whole = whole_of(model, tokenizer, tmp_path, "--decode", "classification")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tx.FallbackWarning)
        result = whole.run({"text": np.array(texts, object)})
    for row, each in enumerate(expected):
        assert result["labels"][row].tolist() == [pair["label"] for pair in each]
        np.testing.assert_allclose(result["scores"][row], [pair["score"] for pair in each], rtol=1e-3)


SENTENCES = ["hello world, this is a test", "the quick brown fox jumps over the lazy dog", "12 34"]


def marian(folder):
    """A tokenizer of Marian, whose files are in a folder, and a model with random weights."""
    model = io.BytesIO()
    options = {"vocab_size": 60, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(SENTENCES * 9), model_writer=model, **options)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [processor.id_to_piece(number) for number in range(3, processor.get_piece_size() - 5)]
    words = ["</s>", "<unk>", *reversed(pieces), "<pad>"]
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(model.getvalue())
    (folder / "vocab.json").write_text(json.dumps({word: k for k, word in enumerate(words)}), "utf-8")
    tokenizer = transformers.MarianTokenizer(*(str(folder / n) for n in ("source.spm", "target.spm", "vocab.json")))
    parts = [f"{part}_{name}" for part in ("encoder", "decoder") for name in ("layers", "attention_heads", "ffn_dim")]
    sizes = {"d_model": 32, "max_position_embeddings": 64} | dict(zip(parts, [1, 4, 64] * 2, strict=True))
    pad = len(words) - 1
    tokens = {"decoder_start_token_id": pad, "pad_token_id": pad, "eos_token_id": 0, "forced_eos_token_id": 0}
    config = transformers.MarianConfig(vocab_size=len(words), **sizes, **tokens)
    made = seeded(transformers.MarianMTModel, config)
    made.generation_config.update(bad_words_ids=[[pad]], num_beams=4, max_length=12)
    return tokenizer, made


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_translation(tmp_path):
    tokenizer, model = marian(tmp_path)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = type(model).from_pretrained(tmp_path)  # with positions that are not stored
    out = tmp_path / "out"
    tenonnx_transformers.export(tmp_path, out, verify=False)
    arguments = ["compose", str(out), str(out), "-o", str(tmp_path / "whole.onnx"), "--decode", "text"]
    done = CliRunner().invoke(program, arguments)
    assert done.exit_code == 0, done.output
    texts = ["hello world, the dog", "12 34", "unknown \u4f60", ""]
    given = tokenizer(texts, return_tensors="pt", padding=True)
    expected = tokenizer.batch_decode(model.generate(**given, num_beams=1), skip_special_tokens=True)
    whole = tx.load(tmp_path / "whole.onnx")
    assert [value.name for value in whole.outputs] == ["generated_text"]
    assert len(set(expected)) > 1
    result = whole.run({"text": np.array(texts, object)})["generated_text"]
    assert result.tolist() == expected


def test_audio_classification(tmp_path):
    convolutions = {"conv_dim": [8, 8], "conv_stride": [5, 4], "conv_kernel": [10, 8], "num_feat_extract_layers": 2}
    positions = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "classifier_proj_size": 8}
    config = transformers.Wav2Vec2Config(id2label=NAMES, **convolutions, **positions, **_SIZES)
    model = seeded(transformers.Wav2Vec2ForSequenceClassification, config)
    extractor = transformers.Wav2Vec2FeatureExtractor()
    wave = np.random.default_rng(0).standard_normal(1600).astype(np.float32) / 8 + np.float32(0.5)
    pipeline = transformers.pipeline("audio-classification", model=model, feature_extractor=extractor)
    expected = pipeline(wave, top_k=5)
    result = whole_of(model, extractor, tmp_path, "--decode", "classification").run({"audio": wave[None]})
    assert result["labels"][0].tolist() == [each["label"] for each in expected]
    np.testing.assert_allclose(result["scores"][0], [each["score"] for each in expected], rtol=1e-3)


@pytest.mark.parametrize("settings", [{}, {"feature_size": 128, "chunk_length": 5}, {"hop_length": 100, "n_fft": 320}])
@pytest.mark.parametrize("count", [100, 20_000, 90_001])
def test_features_of_whisper(settings, count, tmp_path):
    extractor = transformers.WhisperFeatureExtractor(**{"chunk_length": 3} | settings)
    extractor.save_pretrained(tmp_path)
    wave = np.random.default_rng(count).standard_normal((2, count)).astype(np.float32) * np.linspace(0, 1, count)
    wave = wave.astype(np.float32)
    expected = extractor(list(wave), sampling_rate=16000, return_tensors="np")["input_features"]
    result = tx.feature_extractor(tmp_path).run({"audio": wave})["input_features"]
    np.testing.assert_allclose(result, expected, atol=1e-4)
