"""What is scored: files of tables, images and arrays, by their suffixes."""

from tenonnx_score.readers.folders import read
from tenonnx_score.readers.slices import Bad, Chunk, Reader, Slice, unreadable
from tenonnx_score.readers.sources import READERS, Sources, found

__all__ = ["READERS", "Bad", "Chunk", "Reader", "Slice", "Sources", "found", "read", "unreadable"]
