"""Names of losses, metrics and optimizers, for help and completion, without importing them."""

#: Names of ``LOSSES``.
LOSS_NAMES = (
    "softmax_cross_entropy",
    "negative_log_likelihood",
    "mean_squared_error",
    "mean_absolute_error",
    "huber",
    "binary_cross_entropy",
    "focal",
    "dice",
    "kl_divergence",
    "triplet",
    "info_nce",
    "ctc",
)

#: Names of ``METRICS``; losses are metrics, too.
METRIC_NAMES = ("accuracy", "top_5", "mean_absolute_error", "perplexity", "f1", "roc_auc")

#: Names of ``OPTIMIZERS``.
OPTIMIZER_NAMES = ("sgd", "momentum", "adagrad", "adam", "adamw", "rmsprop", "lion", "lamb")
