"""A model on its way to a file: one table of steps, which every program that writes models goes through."""
