"""Routes of the server."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tenonnx_cli.drawing import COLORS
from tenonnx_serve.form import form
from tenonnx_serve.jobs import Job, Jobs, TooManyJobs
from tenonnx_serve.processes import JobFailed, Pool
from tenonnx_serve.reports import REPORTS
from tenonnx_serve.sources import Refused, Sources
from tenonnx_serve.views import Views

#: The files of the page.
STATIC = Path(__file__).parent / "static"

#: Bytes of a question.
LARGEST_QUESTION = 1 << 20

#: Seconds after which a stream of news says again what it said.
BEAT = 15.0

#: What can be asked of a model that is looked at, and what is done as a job.
LOOKS = ("open", "draw", "node", "value", "path", "histogram", "costs")
WORKS = ("export", "compare", "run", "compute", "explain")


@dataclass(frozen=True, slots=True)
class Settings:
    """``given`` is a model, FILE.py:FUNCTION to be read with ``reading``, a folder or None.

    A job may take so many ``seconds``, and a file that is sent be of ``largest`` bytes.
    """

    given: str | None = None
    seconds: float = 600.0
    largest: int = 4 << 30
    at_once: int = 1
    reading: Mapping[str, Any] = field(default_factory=dict)


#: The folder of a server is called so, followed by the number of its process.
_PREFIX = "tenonnx-serve-"


def remove_left_behind() -> None:
    """Remove the folders of servers that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        number = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if number.isdecimal() and not _is_running(int(number)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is of another user
        return True
    return True


class Server:
    """State behind the answers. Everything that it writes is in one folder, which goes with it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.number = secrets.token_hex(8)
        remove_left_behind()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        for name in ("sent", "results", "work"):
            (self.folder / name).mkdir()
        self.sources = Sources(self.folder / "sent", settings.given, settings.largest, settings.reading)
        self.pool = Pool(str(self.folder / "work"))
        self.views = Views(self.pool, settings.seconds)
        self.jobs = Jobs(self.pool, self.folder / "results", settings.seconds, settings.at_once)

    async def close(self) -> None:
        """End all jobs and remove all files."""
        await self.jobs.close()
        await self.pool.close()
        self.remove_files()

    def remove_files(self) -> None:
        """Remove what was sent and made; processes of jobs end by themselves once the server has."""
        shutil.rmtree(self.folder, ignore_errors=True)

    # ----- models -----------------------------------------------------------------------------------------------------

    async def state(self, request: Request) -> Response:
        """State for a page that is opened, or opened again."""
        return JSONResponse(
            {
                "server": self.number,
                "models": [model.to_dict() for model in self.sources.models.values()],
                "files": self.sources.listing(),
                "jobs": [job.to_dict() | {"result": None} for job in self.jobs.all.values()],
                "form": form(),
                "colors": COLORS,
            }
        )

    async def send(self, request: Request) -> Response:
        """A file on its way to this machine, in the body of the request."""
        length = request.headers.get("content-length", "")
        size = int(length) if length.isascii() and length.isdigit() else None
        name, beside = request.query_params.get("name", ""), request.query_params.get("beside", "")
        feeds = request.query_params.get("feeds") == "1"
        model = await self.sources.receive(name, beside, size, request.stream(), feeds)
        if beside:  # it is read again, with its data
            await self.views.forget(model.id)
        return JSONResponse(model.to_dict())

    async def open(self, request: Request) -> Response:
        """A model of the folder."""
        question = await _question(request)
        return JSONResponse(self.sources.open(str(question.get("file", ""))).to_dict())

    async def look(self, request: Request) -> Response:
        """Answer of the process of a model."""
        task = request.path_params["task"]
        if task not in LOOKS:
            raise Refused(404, "There is no such question.")
        model = self.sources.find(request.path_params["model"])
        return JSONResponse(await self.views.ask(model, task, await _question(request)))

    async def array(self, request: Request) -> Response:
        """A weight of a model as a file."""
        model = self.sources.find(request.path_params["model"])
        query = request.query_params
        place = query.get("place", "")
        folder = Path(tempfile.mkdtemp(dir=self.folder / "results"))
        remove = BackgroundTask(shutil.rmtree, folder, ignore_errors=True)
        question = {
            "key": query.get("key", ""),
            "place": int(place) if place.isascii() and place.isdecimal() else -1,
            "format": query.get("format", ""),
            "folder": str(folder),
        }
        try:
            name = (await self.views.ask(model, "array", question))["file"]
        except BaseException:
            await remove()
            raise
        return FileResponse(folder / name, filename=name, media_type="application/octet-stream", background=remove)

    async def alive(self, request: Request) -> Response:
        """The number of this server, which is another after it was started again."""
        return JSONResponse({"server": self.number})

    async def report(self, request: Request) -> Response:
        """The report of an export, as a page or as Markdown."""
        job, format = self._job(request), request.path_params["format"]
        if job.task != "export" or job.state != "done" or format not in REPORTS:
            raise Refused(404, "There is no such report.")
        written, kind = REPORTS[format]
        name = f"{Path(job.title).stem or 'model'}-report.{format}"
        headers = {"content-disposition": f"attachment; filename*=utf-8''{quote(name)}"}
        return Response(written(job.title, job.result), media_type=kind, headers=headers)

    async def close_model(self, request: Request) -> Response:
        """Let go of a model."""
        model = self.sources.find(request.path_params["model"])
        await self.views.forget(model.id)
        self.sources.forget(model.id)
        return JSONResponse({})

    # ----- jobs -------------------------------------------------------------------------------------------------------

    async def start(self, request: Request) -> Response:
        """A job for a model. Other models and files are told by their ids."""
        question = await _question(request)
        task = question.get("task")
        if task not in WORKS:
            raise Refused(404, "There is no such job.")
        model = self.sources.find(str(question.get("model", "")))
        arguments = {"source": model.source, "name": model.name, "reading": model.reading}
        arguments["options"] = question.get("options") or {}
        if question.get("other"):
            arguments["other"] = self.sources.find(str(question["other"])).source
        if question.get("feeds"):
            arguments["feeds"] = self.sources.find_feeds(str(question["feeds"])).source
        return JSONResponse(self.jobs.add(task, model.name, model.id, arguments).to_dict())

    async def job(self, request: Request) -> Response:
        return JSONResponse(self._job(request).to_dict())

    async def news(self, request: Request) -> Response:
        """A job as it goes on, as events."""
        job = self._job(request)
        return StreamingResponse(_events(self.jobs.follow(job, BEAT)), media_type="text/event-stream")

    async def cancel(self, request: Request) -> Response:
        job = self._job(request)
        await self.jobs.cancel(job)
        return JSONResponse(job.to_dict())

    async def file(self, request: Request) -> Response:
        """File made by a job."""
        job = self._job(request)
        if job.file is None:
            raise Refused(404, "This job gave no file.")
        return FileResponse(job.file, filename=job.file.name, media_type="application/octet-stream")

    def _job(self, request: Request) -> Job:
        job = self.jobs.all.get(request.path_params["job"])
        if job is None:
            raise Refused(404, "This job is not known any more. Start it again.")
        return job


async def _question(request: Request) -> dict[str, Any]:
    """The JSON that a request brings. Raises ``Refused``."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_QUESTION:
            raise Refused(413, "A question is short.")
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused(400, "A question is JSON.")
    return found


async def _events(states: AsyncIterator[Job]) -> AsyncIterator[str]:
    async for job in states:
        yield f"data: {json.dumps(job.to_dict(), allow_nan=False)}\n\n"


def _answering(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Refusals and failures as the page shows them."""

    async def answered(request: Request) -> Response:
        try:
            return await answer(request)
        except Refused as refused:
            return JSONResponse({"what": refused.what}, refused.status)
        except JobFailed as failed:
            return JSONResponse(failed.error, 422)
        except TooManyJobs:
            return JSONResponse({"what": "Too many jobs wait. Cancel some, or wait for them."}, 429)
        except ClientDisconnect:
            return Response(status_code=400)

    return answered


def application(server: Server) -> Starlette:
    """The application of a server, without its guard."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        server.pool.prepare()
        try:
            yield
        finally:
            await server.close()

    async def page(_: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    def route(path: str, method: str, answer: Callable[[Request], Awaitable[Response]]) -> Route:
        return Route(f"/api{path}", _answering(answer), methods=[method])

    return Starlette(
        routes=[
            Route("/", page),
            route("/state", "GET", server.state),
            route("/alive", "GET", server.alive),
            route("/models", "POST", server.open),
            route("/files", "PUT", server.send),
            route("/models/{model}", "DELETE", server.close_model),
            route("/models/{model}/array", "GET", server.array),
            route("/models/{model}/{task}", "POST", server.look),
            route("/jobs", "POST", server.start),
            route("/jobs/{job}", "GET", server.job),
            route("/jobs/{job}/news", "GET", server.news),
            route("/jobs/{job}/cancel", "POST", server.cancel),
            route("/jobs/{job}/file", "GET", server.file),
            route("/jobs/{job}/report.{format}", "GET", server.report),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        lifespan=lifespan,
    )
