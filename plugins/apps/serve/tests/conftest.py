"""A server without a socket, and a client that acts as its page."""

import time

import pytest
from starlette.testclient import TestClient

from tenonnx_serve.application import Server, Settings, application
from tenonnx_serve.guard import Guard

TOKEN, PORT = "secret", 8123


class Page:
    """Client that sends the requests of the page."""

    def __init__(self, client, server):
        self.client, self.server = client, server

    def ask(self, path, status=200, **question):
        answer = self.client.post(f"/api{path}", json=question)
        assert answer.status_code == status, answer.text
        return answer.json()

    def send(self, name, body, status=200, **more):
        answer = self.client.put("/api/files", params={"name": name, **more}, content=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def job(self, id):
        return self.client.get(f"/api/jobs/{id}").json()

    def done(self, **question):
        """Start a job and wait for its end."""
        return self.awaited(self.ask("/jobs", **question)["id"])

    def awaited(self, id, state=("done", "failed", "cancelled")):
        limit = time.monotonic() + 120
        while (job := self.job(id))["state"] not in state:
            assert time.monotonic() < limit, job
            time.sleep(0.05)
        return job


@pytest.fixture
def serve():
    """Starts servers: ``serve(given, seconds=..., largest=...)`` returns a client."""
    clients = []

    def start(given=None, **settings):
        server = Server(Settings(None if given is None else str(given), **settings))
        guarded = Guard(application(server), TOKEN, PORT, {"127.0.0.1", "localhost"})
        headers = {"authorization": f"Bearer {TOKEN}"}
        client = TestClient(guarded, f"http://127.0.0.1:{PORT}", headers=headers)
        client.__enter__()
        clients.append((client, server))
        return Page(client, server)

    yield start
    for client, server in clients:
        client.__exit__(None, None, None)
        assert not server.folder.exists(), "what a server wrote goes with it"
