"""Model Context Protocol server on stdin and stdout, with commands as tools."""

from __future__ import annotations

import asyncio
import tempfile
from importlib.metadata import version
from typing import Any

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from tenonnx import TenonnxError
from tenonnx_serve.mcp_tools import OPTIONS, Limits, call, description, schema

_INSTRUCTIONS = (
    "Tools for ONNX models. Paths are those of the machine that runs this server. Results are those of the command "
    "line with --json. Ask plan before convert; verify compares what models compute, compare also their structure."
)


def serve(limits: Limits, at_once: int) -> None:
    """Answer a client until stdin ends, with at most ``at_once`` concurrent calls."""
    with tempfile.TemporaryDirectory(prefix="tenonnx-serve-", ignore_cleanup_errors=True) as folder:
        asyncio.run(_serve(limits, at_once, folder))


async def _serve(limits: Limits, at_once: int, folder: str) -> None:
    turn = asyncio.Semaphore(at_once)
    tools = [_tool(command) for command in OPTIONS if command != "convert" or limits.output_folder is not None]

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            if params.name not in OPTIONS:
                return _answer(f"unknown tool: {params.name}\n  available  {', '.join(OPTIONS)}", failed=True)
            async with turn:
                return _answer(await call(params.name, params.arguments or {}, limits, folder))
        except TenonnxError as error:
            return _answer(str(error), failed=True)

    server: Server[Any] = Server(
        "tenonnx",
        version=version("tenonnx-serve"),
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def _tool(command: str) -> types.Tool:
    writes = command == "convert"
    return types.Tool(
        name=command,
        description=description(command),
        input_schema=schema(command),
        annotations=types.ToolAnnotations(
            read_only_hint=not writes, destructive_hint=writes, idempotent_hint=True, open_world_hint=False
        ),
    )


def _answer(text: str, failed: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=failed)
