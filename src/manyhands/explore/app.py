"""The pages of the explorer, and the server on this machine."""

from __future__ import annotations

import secrets
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

from manyhands.codes import advice_on
from manyhands.exceptions import WriteError, raise_missing_extra
from manyhands.explore.answers import BadAnswer
from manyhands.explore.class_answers import ClassAnswers
from manyhands.explore.desk import STATES, Choice, Conflict, Desk
from manyhands.explore.guard import RequestGuard
from manyhands.explore.inputs import SHOWN
from manyhands.explore.outputs import EXPORTS, tables_of, write_reviewed
from manyhands.explore.plans import Plans
from manyhands.io.consensus_labels import ACTIONS
from manyhands.io.exports.formats import WRITERS
from manyhands.io.frames import write_table
from manyhands.report.commands import fill_page
from manyhands.report.confusions import REVERSED, both_ways
from manyhands.report.filters import FILTERS, visible
from manyhands.report.html import style_sheet
from manyhands.report.limits import FEW as LEAST
from manyhands.report.planning import RANGE_OF_GAIN
from manyhands.wording import A_FLAG, RANDOM_ITEMS_TELL

try:
    import uvicorn
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, RedirectResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp
except ImportError as missing:
    raise_missing_extra("manyhands explore", "explore", missing)

STATIC: Final = {
    "report.css": "text/css",
    "explore.css": "text/css",
    "explore.js": "text/javascript",
    "htmx.min.js": "text/javascript",
}
"""Media type of each file; colours, tables and bars are the report's."""

LARGEST_FORM: Final = 65536
"""Bytes of a form."""

KEYS: Final = "123456789" + "qwertyiodfhjklzxvbm"
"""Keys of the classes or options, in their order; the others are found by name."""

PAGE: Final = 50
"""Items of a page of a table."""

MANY: Final = 300
FEW: Final = 15
"""Most annotators in a table, unless all are asked for; most classes in a matrix."""


def make_app(desk: Desk, token: str, port: int) -> ASGIApp:
    """Make the application: pages of a desk, behind a `RequestGuard`."""
    answers = desk.answers
    pages = _FigurePages(desk, answers) if isinstance(answers, ClassAnswers) else _Pages(desk)
    routes = [
        *pages.routes,
        Route("/list", pages.items),
        Route("/", pages.review),
        Route("/item/{row:int}", pages.review),
        Route("/find", pages.find),
        Route("/image/{row:int}", pages.image),
        Route("/export/{name}", pages.export),
        Route("/static/{name}", static),
        Route("/decide", pages.decide, methods=["POST"]),
        Route("/undo", pages.undo, methods=["POST"]),
    ]
    handlers: Mapping[Any, Any] = {HTTPException: pages.error}
    return RequestGuard(Starlette(routes=routes, exception_handlers=handlers), token, port)


def serve(desk: Desk, port: int, announce: Callable[[str], object]) -> None:
    """Serve a desk on this machine until interrupted.

    Parameters
    ----------
    desk : Desk
    port : int
        0 takes a free one.
    announce : function
        Called with the address, which holds the token, when the page can be opened.

    Raises
    ------
    WriteError
        If the port is taken.
    """
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            raise WriteError(
                error.errno, f"port {port} of this machine cannot be used ({error.strerror}); "
                "leave --port out, or give another one",
            ) from error  # fmt: skip
        listener.listen()
        port, token = listener.getsockname()[1], secrets.token_urlsafe(32)
        config = uvicorn.Config(
            make_app(desk, token, port),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
        )
        announce(f"http://127.0.0.1:{port}/?token={token}")
        uvicorn.Server(config).run(sockets=[listener])


def static(request: Request) -> Response:
    """Send a style sheet or a script."""
    name = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    if name == "report.css":
        content = style_sheet()
    else:
        content = (files("manyhands.explore") / "static" / name).read_text(encoding="utf-8")
    return Response(content, media_type=STATIC[name])


class _Pages:
    """Answers to requests. Functions that are not coroutines run in threads."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.routes: list[Route] = []

    def review(self, request: Request) -> Response:
        """Show an item: the one that is named, or the first of those chosen."""
        return self._page(self._choice(request.query_params), request.path_params.get("row"))

    def _page(
        self, choice: Choice, row: int | None, *, status: int = 200, conflict: Any = None
    ) -> HTMLResponse:
        desk = self._desk
        rows = desk.rows(choice)
        on = row is not None
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
            query=query_of(choice),
            item=None if row is None else desk.item(row),
            place="/",
            n_chosen=len(rows),
            at=place,
            before=None if not place else int(rows[place - 1]),
            after=int(rows[after]) if after < len(rows) else None,
            conflict=conflict,
        )

    def find(self, request: Request) -> Response:
        """Lead to the item of an id, as the annotations spell it."""
        wanted = request.query_params.get("id", "").strip()
        rows = {str(task): row for task, row in self._desk.row_of.items()}
        if wanted not in rows:
            said = f"no item is called {wanted!r}; write its id as the annotations do"
            raise HTTPException(HTTPStatus.NOT_FOUND, said)
        return _back(Choice(state="all"), rows[wanted])

    def items(self, request: Request) -> Response:
        """Show those chosen as a table, a page at a time."""
        desk, choice = self._desk, self._choice(request.query_params)
        rows = desk.rows(choice).tolist()
        more = _paged(request, rows, choice)
        items = [desk.item(row) for row in more.pop("rows")]
        return self._render("list", items=items, n_chosen=len(rows), place="/list", **more)

    def _render(self, view: str, *, status: int = 200, **more: Any) -> HTMLResponse:
        """Render a page; what went wrong is no place to come back to."""
        desk = self._desk
        with desk.steady():
            page = environment().get_template("page.html").render(
                view=view, desk=desk, answers=desk.answers, choice=more.pop("choice", Choice()),
                tools=WRITERS.values(), keys=KEYS, few=FEW, many=MANY, least=LEAST, **more,
            )  # fmt: skip
        headers = {} if status < HTTPStatus.BAD_REQUEST else {"HX-Push-Url": "false"}
        return HTMLResponse(fill_page(page, desk.files), status_code=status, headers=headers)

    def image(self, request: Request) -> Response:
        """Send the image of an item; only rows can be asked for, no paths."""
        path = self._desk.contents.images.get(request.path_params["row"])
        if path is None or not path.is_file():
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return Response(path.read_bytes(), media_type=f"image/{SHOWN[path.suffix.lower()]}")

    def export(self, request: Request) -> Response:
        """Send labels or corrections as a file."""
        name, tables = request.path_params["name"], tables_of(self._desk)
        if name not in (*EXPORTS, *tables):
            raise HTTPException(HTTPStatus.NOT_FOUND)
        only = request.query_params.get("only") == "reviewed"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            if name in tables:
                write_table(path, tables[name](self._desk))
            else:
                write_reviewed(self._desk, path, EXPORTS[name], only=only)
            content = path.read_bytes()
        disposition = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type="application/octet-stream", headers=disposition)

    async def decide(self, request: Request) -> Response:
        """Take a decision; answer only when it is on the disk."""
        return await run_in_threadpool(self._decide, parse_qs(await _body(request)))

    def _decide(self, fields: dict[str, list[str]]) -> Response:
        form = {name: values[-1] for name, values in fields.items()}
        desk, choice = self._desk, self._choice(_fields(form.get("back", "")))
        row, version = whole(form, "row"), whole(form, "version")
        try:
            answer, shown = desk.answers.read(fields)
        except BadAnswer as error:
            raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from error
        if row >= desk.table.n_instances:
            raise HTTPException(HTTPStatus.BAD_REQUEST, "there is no such item")
        answer = None if form.get("do") == "skip" else answer
        before = desk.rows(choice).tolist()
        try:
            is_gold, chosen = "gold" in form, choice.chosen
            desk.decide(row, version, answer, shown=shown, gold=is_gold, chosen=chosen)
        except Conflict:
            wanted = {"did": "skip" if answer is None else "decide", "answer": answer}
            return self._page(choice, row, status=HTTPStatus.CONFLICT, conflict=wanted)
        except WriteError as error:
            raise HTTPException(HTTPStatus.INSUFFICIENT_STORAGE, f"not saved: {error}") from error
        left = set(desk.rows(choice).tolist())
        if not form.get("on") and row not in left:
            return _back(choice)
        # Somebody who went further down the queue goes on from there, and so does who would
        # otherwise see the same item again.
        place = before.index(row) + 1 if row in before else 0
        return _back(choice, next((row for row in before[place:] if row in left), None))

    async def undo(self, request: Request) -> Response:
        """Take the last action on an item back, and show the item."""
        return await run_in_threadpool(self._undo, _fields(await _body(request)))

    def _undo(self, form: dict[str, str]) -> Response:
        choice = self._choice(_fields(form.get("back", "")))
        row, version = whole(form, "row"), whole(form, "version")
        try:
            self._desk.undo(row, version)
        except (Conflict, IndexError):
            wanted = {"did": "undo", "answer": None}
            return self._page(choice, None, status=HTTPStatus.CONFLICT, conflict=wanted)
        except WriteError as error:
            raise HTTPException(HTTPStatus.INSUFFICIENT_STORAGE, f"not saved: {error}") from error
        return _back(choice, row)

    def error(self, request: Request, error: Exception) -> Response:
        """Show what went wrong."""
        status = getattr(error, "status_code", 500)
        said = getattr(error, "detail", "")
        return self._render("error", status=status, code=int(status), text=said)

    def _choice(self, query: Mapping[str, str]) -> Choice:
        """Read which items are chosen from an address."""
        desk = self._desk
        state = query.get("state", "open")
        if state not in STATES:
            raise HTTPException(HTTPStatus.BAD_REQUEST, f"state={state!r}: use {', '.join(STATES)}")
        sizes = {
            "label": len(desk.answers.options),
            "given": len(desk.answers.options),
            "annotator": desk.table.n_annotators,
        }
        found: dict[str, Any] = {"state": state, "order": "doubt"}
        for name, size in sizes.items():
            if query.get(name):
                found[name] = whole(query, name)
                if found[name] >= size:
                    raise HTTPException(HTTPStatus.BAD_REQUEST, f"there is no {name} {query[name]}")
        if query.get("action"):
            found["action"] = query["action"]
            if found["action"] not in ACTIONS:
                said = f"action={query['action']!r}: use {', '.join(ACTIONS)}"
                raise HTTPException(HTTPStatus.BAD_REQUEST, said)
        if query.get("order") == "random":
            found["order"] = "random"
        return Choice(**found)


class _FigurePages(_Pages):
    """Pages on annotators and plans, of labels that are one class each."""

    def __init__(self, desk: Desk, answers: ClassAnswers) -> None:
        super().__init__(desk)
        self._answers, self._plans = answers, Plans(desk)
        self.routes = [
            Route("/people", self.people),
            Route("/sheet/{r:int}", self.sheet),
            Route("/next", self.next),
            Route("/status", self.status),
        ]

    def people(self, request: Request) -> Response:
        """Show annotators, those who need a look first, and which classes are confused."""
        found = self._answers.figures
        order = found.people()
        shown = order if request.query_params.get("all") else order[:MANY]
        screens = [found.screens[r] for r in shown if r in found.screens and found.screens[r].flags]
        pairs = found.pairs.copy()
        pairs[range(len(pairs)), range(len(pairs))] = 0
        cells = [divmod(int(cell), len(pairs)) for cell in (-pairs).argsort(axis=None)]
        counts = [
            {"row": a, "column": b, "n": int(pairs[a, b]), "instances": ()}
            for a, b in cells
            if pairs[a, b]
        ]
        return self._render(
            "people",
            people=shown,
            advice=[*dict.fromkeys(advice_on(each.flags[0], each.advice) for each in screens)],
            n_people=len(order),
            top=both_ways(counts)[:20],
        )

    def sheet(self, request: Request) -> Response:
        """Show what an annotator confuses, with items that an expert must look at first."""
        r = request.path_params["r"]
        if r >= self._desk.table.n_annotators:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no annotator {r}")
        return self._render("sheet", r=r, sheet=self._plans.sheet(r))

    def next(self, request: Request) -> Response:
        """Show what to ask next, and what more rounds would bring if this is asked for."""
        ahead = bool(request.query_params.get("ahead"))
        choice, plan = self._choice(request.query_params), self._plans.next(ahead=ahead)
        pairs = () if plan is None else plan.pairs
        if choice.annotator is not None:
            pairs = tuple(pair for pair in pairs if pair.annotator == choice.annotator)
        more = _paged(request, pairs, choice)
        return self._render("next", plan=plan, ahead=ahead, pairs=more.pop("rows"), **more)

    def status(self, request: Request) -> Response:
        """Say whether the figures include every correction."""
        return self._render("status")


@cache
def environment() -> Environment:
    """Make the environment of the templates once."""
    made = Environment(
        loader=PackageLoader("manyhands.explore", "templates"),
        autoescape=True,  # Every name and every text is untrusted.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    made.filters["prose"] = prose
    made.filters["query"] = urlencode
    made.globals |= {"A_FLAG": A_FLAG, "RANDOM_ITEMS_TELL": RANDOM_ITEMS_TELL, "REVERSED": REVERSED}
    made.globals |= {"range_of_gain": RANGE_OF_GAIN}
    return made


def prose(value: Any, limit: int = 20_000) -> str:
    r"""Write a text of several lines; characters that reorder or hide others become escapes.

    Examples
    --------
    >>> prose("a\nb\u202ec\u200dd")
    'a\nb\\u202ec\u200dd'
    """
    text = str(value)
    cut = text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit:,} characters more)"
    return "".join(c if c in KEPT else visible(c) for c in cut.replace("\r\n", "\n"))


KEPT: Final = frozenset("\n\t\u200c\u200d")
"""Invisible characters that texts need: line ends, and joiners of letters and emoji."""


def query_of(choice: Choice) -> dict[str, str]:
    """Write which items are chosen for an address; what is usual is left out."""
    usual = Choice()
    names = ("state", "action", "label", "given", "annotator", "order")
    return {
        name: str(getattr(choice, name))
        for name in names
        if getattr(choice, name) != getattr(usual, name)
    }


async def _body(request: Request) -> str:
    """Read the body of a small form."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_FORM:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return body.decode("utf-8", errors="replace")


def _fields(text: str) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(text).items()}


def whole(fields: Mapping[str, str], name: str) -> int:
    """Read a whole number of a form or an address."""
    text = fields.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"{name}={text!r} is no number")
    return int(text)


def _paged(request: Request, rows: Sequence[Any], choice: Choice) -> dict[str, Any]:
    """Return the rows of the page that is asked for, and what leads to the others."""
    n_pages = max(1, -(-len(rows) // PAGE))
    page = whole(request.query_params, "page") if "page" in request.query_params else 1
    if not 1 <= page <= n_pages:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no page {page}")
    shown = rows[(page - 1) * PAGE : page * PAGE]
    query = query_of(choice)
    return {"rows": shown, "page": page, "n_pages": n_pages, "choice": choice, "query": query}


def _back(choice: Choice, row: int | None = None) -> Response:
    query = urlencode(query_of(choice))
    place = "/" if row is None else f"/item/{row}"
    return RedirectResponse(f"{place}?{query}" if query else place, HTTPStatus.SEE_OTHER)
