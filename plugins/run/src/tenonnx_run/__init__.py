"""Running graphs: the numpy backend, feeds, state, and selection of a backend."""
