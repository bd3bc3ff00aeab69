"""Files on onnxruntime against text vectorizers."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, make_pipeline

import tenonnx as tx
from tenonnx_sklearn import feeds

SEEN = [
    "The quick brown fox jumps over the lazy dog",
    "Über die Brücke, ging der Fuchs!",
    "café au lait; CAFÉ noir",
    "naïve  approach\n\nwith   blanks",
    "a b c dd ee",
    "",
    "x1 y2 under_score 42",
    "Łódź Москва 東京",
    "don't won't",
]
ASKED = [
    *SEEN,
    "THE FOX ÜBER ALLES",
    "unknown Words only",
    "   ",
    "cafe\u0301 ﬁne",
    "quick lazy quick",
    "ab日cd — dd—ee",
]
WORDS = (
    {},
    {"lowercase": False},
    {"ngram_range": (1, 2)},
    {"ngram_range": (2, 3), "stop_words": ["the", "der"]},
    {"stop_words": "english"},
    {"strip_accents": "unicode"},
    {"strip_accents": "ascii", "ngram_range": (1, 2)},
    {"token_pattern": r"(?u)\b\w+\b"},
    {"token_pattern": r"[a-z]+"},
    {"tokenizer": str.split, "token_pattern": None},
    {"binary": True},
    {"vocabulary": ["fox", "dog", "café"]},
    {"max_features": 5},
    {"token_pattern": r"\w{3}"},
)
CHARACTERS = ({"ngram_range": (1, 3)}, {"ngram_range": (4, 5)}, {"strip_accents": "unicode"}, {"lowercase": False})


def ran(model, path, **options):
    import onnxruntime

    tx.export(tx.load(model, verify=False), path, **options)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (name,) = [output.name for output in session.get_outputs()]
    return lambda texts: session.run([name], {"X": np.asarray(texts, object)})[0]


def expected(model, texts):
    return model.transform(texts).toarray()


def options_of(found):
    return [pytest.param(each, id=",".join(f"{k}={v}" for k, v in each.items()) or "defaults") for each in found]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", options_of(WORDS))
def test_words(options, tmp_path):
    model = CountVectorizer(**options).fit(SEEN)
    run = ran(model, tmp_path / "m.onnx", opset_version=13)
    np.testing.assert_array_equal(run(ASKED), expected(model, ASKED))
    assert run([]).shape == (0, len(model.vocabulary_))
    np.testing.assert_array_equal(run([""]), expected(model, [""]))


@pytest.mark.parametrize("analyzer", ["char", "char_wb"])
@pytest.mark.parametrize("options", options_of(CHARACTERS))
def test_characters(analyzer, options, tmp_path):
    model = CountVectorizer(analyzer=analyzer, **options).fit(SEEN)
    run = ran(model, tmp_path / "m.onnx")
    np.testing.assert_array_equal(run(ASKED), expected(model, ASKED))
    assert run([]).shape == (0, len(model.vocabulary_))


@pytest.mark.parametrize(
    "options", [{}, {"sublinear_tf": True, "norm": "l1"}, {"use_idf": False, "norm": None}, {"analyzer": "char_wb"}]
)
def test_tfidf(options, tmp_path):
    model = TfidfVectorizer(**options).fit(SEEN)
    np.testing.assert_allclose(ran(model, tmp_path / "m.onnx")(ASKED), expected(model, ASKED), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "options", [{}, {"alternate_sign": False, "norm": None}, {"ngram_range": (1, 2), "norm": "l1"}, {"binary": True}]
)
def test_hashes(options, tmp_path):
    model = HashingVectorizer(n_features=64, **options)
    newer = {"opset_version": 20} if "ngram_range" in options else {}
    run = ran(model, tmp_path / "m.onnx", **newer)
    np.testing.assert_allclose(run(ASKED), expected(model, ASKED), rtol=1e-5, atol=1e-6)
    assert run([]).shape == (0, 64)


def test_a_pipeline_of_texts():
    words = FeatureUnion([("words", TfidfVectorizer()), ("characters", TfidfVectorizer(analyzer="char"))])
    for last in (LogisticRegression(), RandomForestClassifier(5, random_state=0)):
        model = make_pipeline(words, last).fit(SEEN, ["a", "b", "c"] * 3)
        graph = tx.load(model, SEEN)
        assert graph.run(feeds(graph, ASKED))["label"].tolist() == model.predict(ASKED).tolist()


@pytest.mark.parametrize(
    "options",
    [
        {"tokenizer": lambda text: [text], "token_pattern": None},
        {"preprocessor": str.strip},
        {"analyzer": str.split},
        {"token_pattern": r"\b(\w)\w+\b"},
    ],
)
def test_unsupported_text_settings_are_refused(options):
    with pytest.raises(tx.NotRepresentable):
        tx.load(CountVectorizer(**options).fit(SEEN))
