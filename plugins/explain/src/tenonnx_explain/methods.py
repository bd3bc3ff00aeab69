"""Names of the methods of attribution, for the help of the command line, without importing the methods."""

METHODS = (
    "gradient-times-input",
    "integrated-gradients",
    "smoothgrad",
    "grad-cam",
    "occlusion",
    "attention-rollout",
    "tree-shap",
    "kernel-shap",
    "linear-shap",
)
