"""Files of ``torch.export``: read from their JSON and raw weights, without executing code from the file."""
