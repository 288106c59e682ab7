"""The page of the explorer on which sets of labels are reviewed: a check box for each option."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from manyhands.exceptions import WriteError
from manyhands.explore.app import EXPORTS, KEYS, body_of, environment, static, whole
from manyhands.explore.desk import STATES, Conflict
from manyhands.explore.guard import RequestGuard
from manyhands.explore.inputs import SHOWN
from manyhands.explore.set_desk import SetChoice, SetDesk
from manyhands.io.corrections import FIELDS
from manyhands.io.exports.formats import WRITERS
from manyhands.io.frames import write_table
from manyhands.io.writers import write_sets

CORRECTIONS: Final = "corrections.csv"
"""File of the corrections that stand."""


def make_set_app(desk: SetDesk, token: str, port: int) -> ASGIApp:
    """Make the application: the page of a desk of sets, behind a `RequestGuard`."""
    pages = _Pages(desk)
    routes = [
        Route("/", pages.review),
        Route("/item/{row:int}", pages.review),
        Route("/image/{row:int}", pages.image),
        Route("/export/{name}", pages.export),
        Route("/static/{name}", static),
        Route("/decide", pages.decide, methods=["POST"]),
        Route("/undo", pages.undo, methods=["POST"]),
    ]
    handlers: Mapping[Any, Any] = {HTTPException: pages.error}
    return RequestGuard(Starlette(routes=routes, exception_handlers=handlers), token, port)


class _Pages:
    """Answers to requests. Functions that are not coroutines run in threads."""

    def __init__(self, desk: SetDesk) -> None:
        self._desk = desk

    def review(self, request: Request) -> Response:
        """Show an item: the one that is named, or the first of those chosen."""
        choice = self._choice(dict(request.query_params))
        return self._page(choice, request.path_params.get("row"))

    def _page(
        self, choice: SetChoice, row: int | None, *, status: int = 200, conflict: str = ""
    ) -> HTMLResponse:
        desk = self._desk
        rows, on = desk.rows(choice), row is not None
        if row is None and len(rows):
            row = int(rows[0])
        if row is not None and not 0 <= row < desk.table.n_instances:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no item {row}")
        found = (rows == row).nonzero()[0]
        place = int(found[0]) if len(found) else None
        after = 0 if place is None else place + 1
        return self._render(
            "review",
            status=status,
            on=on,
            choice=choice,
            query=urlencode(query_of(choice)),
            item=None if row is None else desk.item(row),
            n_chosen=len(rows),
            place=place,
            before=None if not place else int(rows[place - 1]),
            after=int(rows[after]) if after < len(rows) else None,
            conflict=conflict,
        )

    def _render(self, view: str, *, status: int = 200, **more: Any) -> HTMLResponse:
        page = environment().get_template("set_page.html").render(
            view=view, desk=self._desk, tools=WRITERS.values(), keys=KEYS, **more
        )  # fmt: skip
        headers = {} if status < HTTPStatus.BAD_REQUEST else {"HX-Push-Url": "false"}
        return HTMLResponse(page, status_code=status, headers=headers)

    def image(self, request: Request) -> Response:
        """Send the image of an item; only rows can be asked for, no paths."""
        path = self._desk.contents.images.get(request.path_params["row"])
        if path is None or not path.is_file():
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return Response(path.read_bytes(), media_type=f"image/{SHOWN[path.suffix.lower()]}")

    def export(self, request: Request) -> Response:
        """Send sets or corrections as a file."""
        name = request.path_params["name"]
        if name not in (*EXPORTS, CORRECTIONS):
            raise HTTPException(HTTPStatus.NOT_FOUND)
        only = request.query_params.get("only") == "reviewed"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            if name == CORRECTIONS:
                write_table(path, _corrections(self._desk))
            else:
                write_reviewed_sets(self._desk, path, EXPORTS[name], only=only)
            content = path.read_bytes()
        disposition = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type="application/octet-stream", headers=disposition)

    async def decide(self, request: Request) -> Response:
        """Take a decision; answer only when it is on the disk."""
        return await run_in_threadpool(self._decide, parse_qs(await body_of(request)))

    def _decide(self, form: dict[str, list[str]]) -> Response:
        desk = self._desk
        fields = {name: values[-1] for name, values in form.items()}
        choice = self._choice(_fields(fields.get("back", "")))
        row, version = whole(fields, "row"), whole(fields, "version")
        codes = None
        if fields.get("do") != "skip":
            codes = [whole({"option": text}, "option") for text in form.get("option", [])]
        if row >= desk.table.n_instances or max(codes or [0]) >= desk.table.n_options:
            raise HTTPException(HTTPStatus.BAD_REQUEST, "there is no such item or option")
        before = desk.rows(choice).tolist()
        try:
            desk.decide(row, version, codes, chosen=choice.chosen)
        except Conflict:
            return self._page(choice, row, status=HTTPStatus.CONFLICT, conflict="decide")
        except WriteError as error:
            raise HTTPException(HTTPStatus.INSUFFICIENT_STORAGE, f"not saved: {error}") from error
        if not fields.get("on"):
            return _back(choice)
        # Somebody who went further down the queue goes on from there.
        left = set(desk.rows(choice).tolist())
        place = before.index(row) + 1 if row in before else 0
        return _back(choice, next((row for row in before[place:] if row in left), None))

    async def undo(self, request: Request) -> Response:
        """Take the last action on an item back, and show the item."""
        return await run_in_threadpool(self._undo, _fields(await body_of(request)))

    def _undo(self, form: dict[str, str]) -> Response:
        choice = self._choice(_fields(form.get("back", "")))
        row, version = whole(form, "row"), whole(form, "version")
        try:
            self._desk.undo(row, version)
        except (Conflict, IndexError):
            return self._page(choice, None, status=HTTPStatus.CONFLICT, conflict="undo")
        except WriteError as error:
            raise HTTPException(HTTPStatus.INSUFFICIENT_STORAGE, f"not saved: {error}") from error
        return _back(choice, row)

    def error(self, request: Request, error: Exception) -> Response:
        """Show what went wrong."""
        status = getattr(error, "status_code", 500)
        said = getattr(error, "detail", "")
        return self._render("error", status=status, code=int(status), text=said)

    def _choice(self, query: Mapping[str, str]) -> SetChoice:
        """Read which items are chosen from an address."""
        state = query.get("state", "open")
        if state not in STATES:
            raise HTTPException(HTTPStatus.BAD_REQUEST, f"state={state!r}: use {', '.join(STATES)}")
        found: dict[str, Any] = {"state": state}
        for name in ("option", "ticked"):
            if query.get(name):
                found[name] = whole(query, name)
                if found[name] >= self._desk.table.n_options:
                    raise HTTPException(HTTPStatus.BAD_REQUEST, f"there is no {name} {query[name]}")
        if query.get("order") == "random":
            found["order"] = "random"
        return SetChoice(**found)


def query_of(choice: SetChoice) -> dict[str, str]:
    """Write which items are chosen for an address; what is usual is left out."""
    usual = SetChoice()
    return {
        name: str(getattr(choice, name))
        for name in ("state", "option", "ticked", "order")
        if getattr(choice, name) != getattr(usual, name)
    }


def write_reviewed_sets(
    desk: SetDesk, path: Path, to: str, *, only: bool, keep_formulas: bool = False
) -> Path:
    """Write the sets as they stand in a format of `manyhands.io.writers.write_sets`."""
    return write_sets(
        path,
        desk.reviewed(only=only),
        separator=desk.separator,
        to=to,
        export=desk.contents.export,
        method=desk.method,
        keep_formulas=keep_formulas,
        shown=desk.shown(),
    )


def _corrections(desk: SetDesk) -> dict[str, list[Any]]:
    """Columns of the corrections that stand; sets are written with the separator."""
    records = desk.standing.decisions()
    columns = {name: [getattr(record, name) for record in records] for name in (*FIELDS, "chosen")}
    for name in ("label", "was"):
        columns[name] = [desk.separator.join(names or ()) for names in columns[name]]
    return columns


def _fields(text: str) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(text).items()}


def _back(choice: SetChoice, row: int | None = None) -> Response:
    query = urlencode(query_of(choice))
    place = "/" if row is None else f"/item/{row}"
    return RedirectResponse(f"{place}?{query}" if query else place, HTTPStatus.SEE_OTHER)
