"""Refused requests: other host names, pages of other sites, and requests without the token."""

import pytest

#: as in conftest.py
TOKEN, PORT = "secret", 8123


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.1:1",
        f"127.0.0.1.evil.example:{PORT}",
        f"a@127.0.0.1:{PORT}",
        "",
        f"127.0.0.1:{PORT}/x",
        "127.0.0.1:x",
        "[::1",
    ],
)
def test_another_name_of_the_server_is_refused(serve, host):
    """This prevents DNS rebinding."""
    assert serve().client.get("/api/state", headers={"host": host}).status_code == 400


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"LOCALHOST:{PORT}"])
def test_its_own_names_are_taken(serve, host):
    assert serve().client.get("/api/state", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:8123", "http://127.0.0.1:1", "http://[", ""]
)
def test_pages_of_other_sites_are_always_refused(serve, origin):
    page = serve()
    for method, path in (
        ("GET", "/api/state"),
        ("POST", "/api/jobs"),
        ("PUT", "/api/files?name=m.onnx"),
        ("OPTIONS", "/"),
    ):
        answer = page.client.request(method, path, headers={"origin": origin})
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
    assert page.client.get("/api/state", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert page.client.get("/api/state", headers={"sec-fetch-site": "same-origin"}).status_code == 200
    assert page.client.get("/api/state", headers={"origin": f"http://127.0.0.1:{PORT}"}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/api/state", "/static/main.js", "/api/jobs/x/file", "/nowhere"])
def test_nothing_is_answered_without_the_token(serve, path):
    client = serve().client
    del client.headers["authorization"]
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Basic"},
        {"cookie": f"tenonnx-{PORT}=wrong"},
    ):
        assert client.get(path, headers=headers).status_code == 403
    assert client.get(f"{path}?token=wrong").status_code == 403
    assert client.get(f"{path}?token=").status_code == 403


def test_the_address_with_the_token_opens_the_page_and_sets_a_cookie_for_this_host(serve):
    client = serve().client
    del client.headers["authorization"]
    answer = client.get(f"/?token={TOKEN}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/"), "the token does not stay in the address"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    page = client.get("/")
    assert page.status_code == 200
    assert "<main" in page.text
    assert client.get("/api/state").status_code == 200, "by the cookie"


def test_every_answer_forbids_what_a_page_need_not_do(serve):
    client = serve().client
    for path in ("/", "/api/state", "/static/main.js", "/nowhere", "/api/jobs/none"):
        headers = client.get(path).headers
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == "'none'"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "server" not in headers


def test_addresses_in_numbers_are_taken_where_other_machines_may_ask():
    from tenonnx_serve.guard import Guard

    guard = Guard(None, TOKEN, PORT, {"box"}, any_address=True)
    taken = ["192.168.1.7:8123", "[fe80::1]:8123", "box:8123", "Box:8123"]
    assert [guard._is_named(host) for host in taken] == [True] * 4
    assert not guard._is_named("box.evil.example:8123")
    assert not Guard(None, TOKEN, PORT, {"localhost"})._is_named("192.168.1.7:8123")
