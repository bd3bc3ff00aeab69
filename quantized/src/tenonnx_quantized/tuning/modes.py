"""Names of the modes, formats and methods of a quantization, in a module that imports quickly."""

#: The modes; the first one, which needs no data, is the default.
MODES = ("dynamic", "static", "weights")

FORMS = ("qdq", "qoperator")

GRANULARITIES = ("tensor", "channel", "block")

#: Types of key and value caches.
CACHE_TYPES = ("int8", "float8e4m3fn", "float8e5m2")

#: Calibration methods for ranges of activations.
RANGES = ("minmax", "percentile", "entropy", "mse", "average")

#: Types of the scales of blocks of floats: powers of two (MX formats), or floats times one number (NVFP4).
SCALE_TYPES = ("float8e8m0", "float8e4m3fn")

#: How the scales of a weight are found: by its extremes, half-quadratic quantization or the least square error.
SEARCHES = ("rtn", "hqq", "mse")

#: Methods that round weights; the first one is the default.
ROUNDINGS = ("rtn", "hqq", "gptq", "quantease", "ada-round", "auto-round")

#: Methods that rescale the model beforehand without changing its results in floating point.
PREPARATIONS = ("rotate", "equalize", "smooth-quant", "awq")

METHODS = (*ROUNDINGS, *PREPARATIONS, "bias-correction")
