"""Runs graphs on OpenVINO."""
