"""Connections of clients without a token are limited in number and time."""

import socket
import threading
import time

import pytest
import uvicorn

import tenonnx_cli
from tenonnx_serve import connections
from tenonnx_serve.guard import Guard


async def _answer(scope, receive, send):
    if scope["type"] == "http":
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port(monkeypatch):
    monkeypatch.setattr(connections, "MOST", 8)
    monkeypatch.setattr(connections, "HEADERS", 0.3)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        guarded = Guard(_answer, "t" * 22, port, {"127.0.0.1"})
        config = uvicorn.Config(guarded, http=connections.LimitedProtocol, log_level="critical", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        yield port
        server.should_exit = True
        thread.join(10)


def _ask(port):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {'t' * 22}\r\n\r\n".encode())
        return client.recv(100)


def test_endless_headers_do_not_block_the_server(port):
    assert _ask(port).startswith(b"HTTP/1.1 200")
    slow = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(20)]
    for client in slow:
        client.sendall(b"GET / HTTP/1.1\r\n")
    ended = []
    for client in slow:
        try:
            ended.append(client.recv(1) == b"")
        except ConnectionError:
            ended.append(True)
        client.close()
    assert all(ended)
    assert _ask(port).startswith(b"HTTP/1.1 200")


def test_second_headers_on_a_connection_are_limited_too(port):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        assert client.recv(1000).startswith(b"HTTP/1.1 403")
        client.sendall(b"GET /")
        client.settimeout(10)
        try:
            while client.recv(1000):
                time.sleep(0.01)
        except ConnectionError:
            pass


def test_short_tokens_are_refused_for_other_machines(capsys):
    assert tenonnx_cli.main(["serve", "--no-browser", "--host", "0.0.0.0", "--token", "abc"]) == tenonnx_cli.REFUSED
    assert "too short" in capsys.readouterr().err
