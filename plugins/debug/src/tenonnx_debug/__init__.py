"""Debugging of models: reduction to a minimal failing model, and anonymized copies."""
