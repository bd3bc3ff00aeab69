"""Types and errors."""
