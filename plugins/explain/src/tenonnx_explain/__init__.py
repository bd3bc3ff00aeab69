"""Feature attributions of models, as models."""
