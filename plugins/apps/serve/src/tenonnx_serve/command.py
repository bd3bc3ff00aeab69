"""``tenonnx serve``: the page on this machine, and tools of the Model Context Protocol."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from tenonnx import InvalidCall
from tenonnx.extend import did_you_mean_file, import_optional
from tenonnx_cli.extend import Command, check_reading, complain, is_made, made_options, say

#: Minimum length of a token if other machines can reach the server: more than 128 bits in letters and digits.
_TOKEN = 22


@click.command(
    "serve",
    cls=Command,
    examples=[
        "tenonnx serve",
        "tenonnx serve models/ --mcp --write converted/",
    ],
)
@click.argument("source", required=False, metavar="[MODEL | FILE.py:FUNCTION | FOLDER]")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on. By default a free one.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. Other machines need --token.",
)
@click.option("--token", help="Token that the URL must contain. By default a random one.")
@click.option("--no-browser", is_flag=True, help="Print the address without opening a browser.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit of a job.",
)
@click.option(
    "--upload",
    type=click.FloatRange(min=0, min_open=True),
    default=4.0,
    show_default=True,
    metavar="GB",
    help="Largest file that can be uploaded.",
)
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="Jobs that run at once.")
@click.option(
    "--mcp",
    is_flag=True,
    help="Offer inspect, ops, plan, verify and compare to a client of the Model Context Protocol on stdin and stdout, "
    "in place of the page. Needs tenonnx-serve[mcp].",
)
@click.option(
    "--write",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="With --mcp: also offer convert, which writes files in this folder only.",
)
@made_options
def command(
    source: str | None,
    port: int,
    host: str,
    token: str | None,
    no_browser: bool,
    timeout: float,
    upload: float,
    jobs: int,
    mcp: bool,
    write: Path | None,
    examples: Sequence[str],
    **reading: Any,
) -> None:
    """Open a page in the browser: look at a model, export, compare and run it.

    The page is served on this machine alone, to whoever has the address that is printed. With a FOLDER it opens the
    models in there, and no others. FILE.py:FUNCTION is executed: use only files that you trust.

    With --mcp it opens no page: it offers inspect, ops, plan, verify and compare to a client of the Model Context
    Protocol, on stdin and stdout. Nothing is written unless --write names a folder.
    """
    if mcp:
        return _serve_mcp(source, write, timeout, jobs)
    if write is not None:
        raise InvalidCall("--write was given without --mcp", given=str(write))
    import uvicorn

    from tenonnx_serve.application import Server, Settings, application
    from tenonnx_serve.connections import IDLE, MOST, LimitedProtocol
    from tenonnx_serve.guard import Guard

    check_reading(source or "", examples, reading)
    loopback = _is_loopback(host)
    if token is None and not loopback:
        raise InvalidCall(
            "other machines can reach the server, and no --token was given",
            given=f"--host {host}",
            do="add --token with a text that nobody guesses, or leave --host out",
        )
    if token is not None and not (token.isascii() and token.isalnum()):
        raise InvalidCall("the token has characters other than letters and digits", given=f"{len(token)} characters")
    if token is not None and not loopback and len(token) < _TOKEN:
        raise InvalidCall(
            "the token is too short for a server that other machines reach",
            given=f"{len(token)} letters and digits",
            available=f"at least {_TOKEN}, for 128 bits",
            do="python -c 'import secrets; print(secrets.token_hex(16))' makes one",
        )
    if source is not None and not is_made(source) and not Path(source).exists():
        raise InvalidCall("no model or folder of that name", given=source, do=did_you_mean_file(source))
    listener = _listening(host, port)
    port = listener.getsockname()[1]
    token = token or secrets.token_urlsafe(32).replace("-", "0").replace("_", "1")
    server = Server(Settings(source, timeout, int(upload * 1e9), jobs, {"examples": examples, **reading}))
    names = {"localhost", "127.0.0.1", "::1"} if loopback else {host, socket.gethostname(), "localhost"}
    guarded = Guard(application(server), token, port, names, any_address=not loopback)
    shown = listener.getsockname()[0]
    address = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/?token={token}"
    say(address)
    complain("Ctrl-C ends the server")
    config = uvicorn.Config(
        guarded,
        http=LimitedProtocol,
        log_level="warning",
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=3,
        timeout_keep_alive=IDLE,
        backlog=MOST,
    )
    if not no_browser:
        webbrowser.open(address)
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        server.remove_files()  # also after a second Ctrl-C


def _serve_mcp(source: str | None, write: Path | None, timeout: float, jobs: int) -> None:
    """Serve tools on stdin and stdout. Raises ``InvalidCall`` for options of the page, and if mcp is not installed."""
    ctx = click.get_current_context()
    used = {"source", "mcp", "write", "timeout", "jobs", "config", "profile"}
    given = [
        option.opts[-1]
        for option in ctx.command.get_params(ctx)
        if option.name not in used and ctx.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise InvalidCall("options of the page were given with --mcp", given=", ".join(given), do="leave them out")
    if source is not None and not Path(source).is_dir():
        raise InvalidCall("with --mcp, the source is not a folder", given=source, do="name a folder, or leave it out")
    import_optional("mcp", "serve tools", install="tenonnx-serve[mcp]")
    from tenonnx_serve.mcp_server import serve
    from tenonnx_serve.mcp_tools import Limits

    folder = None if source is None else Path(source).resolve()
    serve(Limits(folder, None if write is None else write.resolve(), timeout), jobs)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listening(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ``InvalidCall`` if the address is not available."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()  # before the address is printed, as a client may connect at once
    except OSError as error:
        raise InvalidCall(
            "the server cannot listen on this address",
            given=f"{host}:{port}: {error.strerror}",
            do="take another --port",
        ) from error
    return listener
