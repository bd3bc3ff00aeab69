"""The numpy backend: a planned list of kernel calls."""
