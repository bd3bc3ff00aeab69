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

#: Static files of the page.
STATIC = Path(__file__).parent / "static"

#: Maximum size of a request body in JSON, in bytes.
LARGEST_REQUEST = 1 << 20

#: Seconds after which an event stream repeats its last state as a heartbeat.
BEAT = 15.0

#: Requests about an open model, and tasks that run as jobs.
LOOKS = ("open", "draw", "node", "value", "path", "histogram", "costs")
WORKS = ("export", "compare", "run", "compute", "explain")


@dataclass(frozen=True, slots=True)
class Settings:
    """``source`` is a model, FILE.py:FUNCTION to be read with ``reading``, a folder or None.

    ``seconds`` is the time limit of a job, ``largest`` the maximum size of an upload in bytes.
    """

    source: str | None = None
    seconds: float = 600.0
    largest: int = 4 << 30
    concurrent_jobs: int = 1
    reading: Mapping[str, Any] = field(default_factory=dict)


#: Prefix of a server's folder, followed by its process ID.
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
    except OSError:  # it belongs to another user
        return True
    return True


class Server:
    """State of the server. All its files are in one folder, which is removed with it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.number = secrets.token_hex(8)
        remove_left_behind()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        for name in ("sent", "results", "work"):
            (self.folder / name).mkdir()
        self.sources = Sources(self.folder / "sent", settings.source, settings.largest, settings.reading)
        self.pool = Pool(str(self.folder / "work"))
        self.views = Views(self.pool, settings.seconds)
        self.jobs = Jobs(self.pool, self.folder / "results", settings.seconds, settings.concurrent_jobs)

    async def close(self) -> None:
        """End all jobs and remove all files."""
        await self.jobs.close()
        await self.pool.close()
        self.remove_files()

    def remove_files(self) -> None:
        """Remove uploads and results; job processes exit by themselves once the server has."""
        shutil.rmtree(self.folder, ignore_errors=True)

    # ----- models -----------------------------------------------------------------------------------------------------

    async def state(self, request: Request) -> Response:
        """State for a page that is opened or reloaded."""
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
        """Receive an upload in the request body."""
        length = request.headers.get("content-length", "")
        size = int(length) if length.isascii() and length.isdigit() else None
        name, beside = request.query_params.get("name", ""), request.query_params.get("beside", "")
        feeds = request.query_params.get("feeds") == "1"
        model = await self.sources.receive(name, beside, size, request.stream(), feeds)
        if beside:  # a data file was added, so the model is reloaded
            await self.views.forget(model.id)
        return JSONResponse(model.to_dict())

    async def open(self, request: Request) -> Response:
        """Open a model of the folder."""
        question = await _body(request)
        return JSONResponse(self.sources.open(str(question.get("file", ""))).to_dict())

    async def look(self, request: Request) -> Response:
        """Answer from the process of a model."""
        task = request.path_params["task"]
        if task not in LOOKS:
            raise Refused(404, "There is no such request.")
        model = self.sources.find(request.path_params["model"])
        return JSONResponse(await self.views.ask(model, task, await _body(request)))

    async def array(self, request: Request) -> Response:
        """A weight of a model as a file."""
        model = self.sources.find(request.path_params["model"])
        query = request.query_params
        place = query.get("place", "")
        folder = Path(tempfile.mkdtemp(dir=self.folder / "results"))
        remove = BackgroundTask(shutil.rmtree, folder, ignore_errors=True)
        question = {
            "key": query.get("key", ""),
            "place": int(place) if place.isascii() and place.isdecimal() and len(place) < 20 else -1,
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
        """The identifier of this server, which changes on restart."""
        return JSONResponse({"server": self.number})

    async def report(self, request: Request) -> Response:
        """The report of an export, as HTML or Markdown."""
        job, format = self._job(request), request.path_params["format"]
        if job.task != "export" or job.state != "done" or format not in REPORTS:
            raise Refused(404, "There is no such report.")
        written, kind = REPORTS[format]
        name = f"{Path(job.title).stem or 'model'}-report.{format}"
        headers = {"content-disposition": f"attachment; filename*=utf-8''{quote(name)}"}
        return Response(written(job.title, job.result), media_type=kind, headers=headers)

    async def close_model(self, request: Request) -> Response:
        """Close a model."""
        model = self.sources.find(request.path_params["model"])
        await self.views.forget(model.id)
        self.sources.forget(model.id)
        return JSONResponse({})

    # ----- jobs -------------------------------------------------------------------------------------------------------

    async def start(self, request: Request) -> Response:
        """Start a job for a model. Other models and files are given by ID."""
        question = await _body(request)
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

    async def events(self, request: Request) -> Response:
        """Progress of a job as server-sent events."""
        job = self._job(request)
        return StreamingResponse(_events(self.jobs.follow(job, BEAT)), media_type="text/event-stream")

    async def cancel(self, request: Request) -> Response:
        job = self._job(request)
        await self.jobs.cancel(job)
        return JSONResponse(job.to_dict())

    async def file(self, request: Request) -> Response:
        """The file that a job made."""
        job = self._job(request)
        if job.file is None:
            raise Refused(404, "This job has written no file.")
        return FileResponse(job.file, filename=job.file.name, media_type="application/octet-stream")

    def _job(self, request: Request) -> Job:
        job = self.jobs.all.get(request.path_params["job"])
        if job is None:
            raise Refused(404, "The server has no such job any more. Start it again.")
        return job


async def _body(request: Request) -> dict[str, Any]:
    """The JSON body of a request. Raises ``Refused``."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_REQUEST:
            raise Refused(413, "The request is too large: at most 1 MiB of JSON.")
    try:
        result = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        result = None
    if not isinstance(result, dict):
        raise Refused(400, "The request is not a JSON object.")
    return result


async def _events(states: AsyncIterator[Job]) -> AsyncIterator[str]:
    async for job in states:
        yield f"data: {json.dumps(job.to_dict(), allow_nan=False)}\n\n"


def _answering(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Convert refusals and failures to responses that the page shows."""

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
    """The application of a server, without access control."""

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
            route("/jobs/{job}/news", "GET", server.events),
            route("/jobs/{job}/cancel", "POST", server.cancel),
            route("/jobs/{job}/file", "GET", server.file),
            route("/jobs/{job}/report.{format}", "GET", server.report),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        lifespan=lifespan,
    )
