"""Floor 3: graph to graph. Everything here is one walk with another decision per call."""
