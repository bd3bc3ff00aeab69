"""Estimators that have no form in a graph of rows, and why."""

from __future__ import annotations

from tenonnx_sklearn.conversion import refuses

refuses(
    "it has no predict: its labels are those of the rows that it was fitted on; fit a classifier on them",
    *(f"sklearn.{name}" for name in (
        "AgglomerativeClustering", "DBSCAN", "HDBSCAN", "OPTICS", "SpectralBiclustering", "SpectralClustering",
        "SpectralCoclustering",
    )),
)  # fmt: skip
refuses(
    "it has no transform: it lays out the rows that it was fitted on alone",
    *(f"sklearn.{name}" for name in ("ClassicalMDS", "MDS", "SpectralEmbedding", "TSNE")),
)
refuses(
    "its rows are mappings of any size; make columns of them, and a ColumnTransformer with OneHotEncoder",
    "sklearn.DictVectorizer",
)
refuses(
    "its rows are sets of labels of any size; make a column of 0 and 1 for each label",
    "sklearn.MultiLabelBinarizer",
)
refuses("it gives as many rows as an image has patches: one row in is one row out", "sklearn.PatchExtractor")
