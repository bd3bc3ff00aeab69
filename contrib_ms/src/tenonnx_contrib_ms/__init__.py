"""The com.microsoft operators."""
