"""Files of ``torch.export``: read from their JSON and raw weights, without running anything that they bring."""
