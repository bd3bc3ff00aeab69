"""Thirteen ops as an author writes them, with their rules and cases, in which mistakes are planted."""
