"""What objects that hold results show of themselves in notebooks: tables as HTML, in which nothing given is markup."""

from tenonnx.html import part, shown, table

__all__ = ["part", "shown", "table"]
