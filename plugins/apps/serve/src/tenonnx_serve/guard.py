"""Access control: requests need the token and the server's host name, and pages of other sites are refused."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Headers of every response. Nothing is loaded from elsewhere, no text becomes a script, no page may embed this one.
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Forwards requests to ``app`` that come from its own page, or from a program with the token.

    The page is opened as ``/?token=...``, which sets a cookie with the token for this host only. ``names`` are the
    allowed host names; ``any_address`` also allows IP addresses.
    """

    def __init__(self, app: ASGIApp, token: str, port: int, names: Collection[str], any_address: bool = False) -> None:
        self.app, self.token, self.port = app, token, port
        self.names, self.any_address = {name.lower() for name in names}, any_address
        self.cookie = f"tenonnx-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        answer = self._answer(scope, Headers(scope=scope))

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await (answer or self.app)(scope, receive, send_guarded)

    def _answer(self, scope: Scope, headers: Headers) -> Response | None:
        """Response to refused requests, and to those with the token in the URL; None forwards the request."""
        host = headers.get("host", "")
        if not self._is_named(host):
            return _refused(400, "This server does not answer to that name. Open the address that it printed.")
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host}".lower():
            return _refused(403, "Pages of other servers may not ask this one.")
        opens = scope["method"] in ("GET", "HEAD") and scope["path"] == "/"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not opens:
            return _refused(403, "Pages of other servers may not ask this one.")
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if opens and self._is_token(given):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self.cookie, self.token, httponly=True, samesite="strict")
            return answer
        if not self._is_token(self._token_of(headers)):
            return _refused(403, "Open the address that tenonnx serve printed: it has a token that is needed here.")
        return None

    def _is_named(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            name, port = parts.hostname or "", parts.port or 80
        except ValueError:
            return False
        if parts.username is not None or parts.path or port != self.port:
            return False
        return name.lower() in self.names or (self.any_address and _is_address(name))

    def _token_of(self, headers: Headers) -> str:
        """The token in a request."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return token
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return ""
        return morsel.value if morsel is not None else ""

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status)
