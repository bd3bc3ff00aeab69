"""Running graphs: the numpy backend, feeds, state, and the choice of a backend."""
