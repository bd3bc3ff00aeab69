"""Thirteen ops of an author, with their rules and cases, as ground for planted mistakes."""
