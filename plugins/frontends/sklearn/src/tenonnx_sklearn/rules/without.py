"""Estimators that cannot be converted, with the reasons."""

from __future__ import annotations

from tenonnx_sklearn.conversion import refuses

refuses(
    "it has no predict: its labels are those of the rows that it was fitted on; fit a classifier on them",
    *(
        f"sklearn.{name}"
        for name in (
            "AgglomerativeClustering",
            "DBSCAN",
            "HDBSCAN",
            "OPTICS",
            "SpectralBiclustering",
            "SpectralClustering",
            "SpectralCoclustering",
        )
    ),
)
refuses(
    "it has no transform: it lays out the rows that it was fitted on alone",
    *(f"sklearn.{name}" for name in ("ClassicalMDS", "MDS", "SpectralEmbedding", "TSNE")),
)
