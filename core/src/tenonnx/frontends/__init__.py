"""What front ends of frameworks share: dims that vary, names, lines of the user's code, and verification."""
