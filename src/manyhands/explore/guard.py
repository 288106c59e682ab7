"""Who may talk to the explorer: this machine, the browser with the token, our own pages."""

from __future__ import annotations

import hmac
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import parse_qs

from manyhands.exceptions import raise_missing_extra

try:
    from starlette.responses import PlainTextResponse, RedirectResponse, Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError as missing:
    raise_missing_extra("manyhands explore", "explore", missing)

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""Of every answer, errors included."""

READS: Final = ("GET", "HEAD")


class RequestGuard:
    """Refuse what does not come from our own pages, in a browser that was given the token.

    A page of another origin, or of another program on this machine, can neither read nor write: it
    has no cookie (SameSite=Strict); the browser itself says where a request comes from
    (``Sec-Fetch-Site``, ``Origin``); and a name that was bound to 127.0.0.1 later on
    (DNS rebinding) is not among the hosts.

    Parameters
    ----------
    app : ASGI application
    token : str
        Secret of this run.
    port : int
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._cookie = f"manyhands-{port}"  # Cookies of all ports go to every port.
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *own]
            await send(message)

        answer = self._answer(scope)
        await (self._app if answer is None else answer)(scope, receive, guarded)

    def _answer(self, scope: Scope) -> Response | None:
        """Refusal, or the redirect that sets the cookie; None lets the request pass."""
        headers = {name.decode("latin-1"): v.decode("latin-1") for name, v in scope["headers"]}
        if headers.get("host") not in self._hosts:
            return _refusal(HTTPStatus.BAD_REQUEST, "this host is not served")
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if scope["path"] == "/" and scope["method"] in READS and given:
            return self._welcome(given[0])
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return _refusal(HTTPStatus.FORBIDDEN, "another site asked")
        if scope["path"] == "/favicon.ico":
            return Response(status_code=HTTPStatus.NO_CONTENT)
        if not self._is_known(headers.get("cookie", "")):
            return _refusal(
                HTTPStatus.FORBIDDEN, "open the address that the command explore printed"
            )
        if scope["method"] not in READS and headers.get("origin") != f"http://{headers['host']}":
            return _refusal(HTTPStatus.FORBIDDEN, "the request does not come from this page")
        return None

    def _welcome(self, token: str) -> Response:
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return _refusal(HTTPStatus.FORBIDDEN, "the token is of another run")
        answer = RedirectResponse("/", status_code=HTTPStatus.SEE_OTHER)
        answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", path="/")
        return answer

    def _is_known(self, cookie: str) -> bool:
        try:
            found: Any = SimpleCookie(cookie).get(self._cookie)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value.encode(), self._token.encode())


def _refusal(status: HTTPStatus, why: str) -> Response:
    return PlainTextResponse(f"refused: {why}\n", status_code=status)
