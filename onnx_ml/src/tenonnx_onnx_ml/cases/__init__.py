"""Conformance cases: every module here declares, per op, how its inputs and attributes are drawn."""

from tenonnx.testing import unwritten

UNWRITTEN = """
    ArrayFeatureExtractor Binarizer CastMap CategoryMapper DictVectorizer FeatureVectorizer Imputer
    LinearRegressor OneHotEncoder SVMClassifier SVMRegressor TreeEnsemble
"""

unwritten("ai.onnx.ml", UNWRITTEN.split(), reason="not written yet: the ops of the example models came first")
