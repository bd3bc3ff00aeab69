"""Names of the methods of attribution, for the command line, which imports none of them for its help."""

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
