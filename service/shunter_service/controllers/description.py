"""The API's description, and a page to try it in a browser: all of it from this process, nothing from the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from litestar import Controller, Response, get
from litestar.params import FromPath, HeaderParameter

from shunter_service.web.problems import not_found

_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # Swagger UI writes styles into its elements
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "public, no-cache",  # kept by browsers, and asked for again by its tag
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class _File(NamedTuple):
    """A file that lies in an installed package."""

    folder: Callable[[], Path]
    name: str
    media_type: str

    def read(self) -> bytes:
        return (self.folder() / self.name).read_bytes()


def _own() -> Path:
    return Path(__file__).parents[1]


def _swagger_ui() -> Path:
    """The package that carries Swagger UI is found, not imported: of the rest that it does nothing is wanted."""
    spec = find_spec("mkdocs_swagger_ui_tag")
    assert spec is not None, "the extra `service` installs it"
    assert spec.origin is not None
    return Path(spec.origin).parent / "swagger-ui"


_DESCRIPTION: Final = _File(_own, "openapi.json", "application/json")
_PAGE: Final = _File(_own, "explorer/index.html", "text/html")
_PARTS: Final[Mapping[str, _File]] = {
    "start.js": _File(_own, "explorer/start.js", "text/javascript"),
    "swagger-ui-bundle.js": _File(_swagger_ui, "javascripts/swagger-ui-bundle.js", "text/javascript"),
    "swagger-ui.css": _File(_swagger_ui, "stylesheets/swagger-ui.css", "text/css"),
}

IfNoneMatch = Annotated[str | None, HeaderParameter(name="If-None-Match")]


class DescriptionController(Controller):
    """Open to everybody: it says nothing about anybody's jobs."""

    path = "/"
    opt = {"public": True}
    include_in_schema = False

    @get("/openapi.json", sync_to_thread=True)
    def description(self, if_none_match: IfNoneMatch = None) -> Response[bytes]:
        """The OpenAPI description, as it was committed with this code."""
        return _answer(_DESCRIPTION, if_none_match)

    @get("/docs", sync_to_thread=True)
    def page(self, if_none_match: IfNoneMatch = None) -> Response[bytes]:
        """The page; its policy lets it load and ask nothing but this service."""
        return _answer(_PAGE, if_none_match)

    @get("/docs/{name:str}", sync_to_thread=True)
    def part(self, name: FromPath[str], if_none_match: IfNoneMatch = None) -> Response[bytes]:
        """What the page loads."""
        if name not in _PARTS:
            raise not_found("part of the page", name[:60])
        return _answer(_PARTS[name], if_none_match)


def _answer(file: _File, if_none_match: str | None) -> Response[bytes]:
    """A file's bytes. They are read anew each time: rarely asked for, and 2 MB that no API process need hold."""
    body = file.read()
    headers = {**_HEADERS, "ETag": f'"{sha256(body).hexdigest()[:32]}"'}
    if if_none_match and headers["ETag"] in if_none_match:
        return Response(content=b"", status_code=304, media_type=file.media_type, headers=headers)
    return Response(content=body, media_type=file.media_type, headers=headers)
