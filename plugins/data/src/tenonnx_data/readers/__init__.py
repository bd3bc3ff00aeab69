"""Readers of tables, images and arrays, by suffix."""

from tenonnx_data.readers.folders import read
from tenonnx_data.readers.slices import Bad, Chunk, Reader, Slice, unreadable
from tenonnx_data.readers.sources import READERS, Sources, found

__all__ = ["READERS", "Bad", "Chunk", "Reader", "Slice", "Sources", "found", "read", "unreadable"]
