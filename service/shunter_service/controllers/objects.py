"""Objects by signed URL: what agents write once and read back. The signature is the only credential."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Annotated, Any, cast

from litestar import Controller, Request, Response, get, put
from litestar.di import NamedDependency
from litestar.params import FromPath, HeaderParameter, QueryParameter
from shunter_store.errors import NotFound
from shunter_store.installation import signing
from shunter_store.storage.objects import BadDigest, BadKey

from shunter_service.context import Service
from shunter_service.web.downloads import Conditions, Piece, download
from shunter_service.web.problems import ProblemError, not_found

Expires = Annotated[str, QueryParameter(max_length=20)]
Signature = Annotated[str, QueryParameter(max_length=100)]
Digest = Annotated[str | None, HeaderParameter(name="X-Shunter-Sha256", max_length=64)]
Range = Annotated[str | None, HeaderParameter(name="Range")]

_SHA256 = re.compile(r"[0-9a-f]{64}")


class ObjectsController(Controller):
    """Keys are written once: a second write of the same bytes is fine, of others it is a conflict."""

    path = "/v1/objects"
    include_in_schema = False
    opt = {"public": True}

    @put("/{key:path}", status_code=201)
    async def write(
        self,
        request: Request[Any, Any, Any],
        key: FromPath[str],
        service: NamedDependency[Service],
        expires: Expires,
        signature: Signature,
        sha256: Digest = None,
    ) -> Response[bytes]:
        """Store the body under the key, whole or not at all; its digest is compared with the announced one."""
        name = _allowed(service, "PUT", key, expires, signature)
        if sha256 is not None and not _SHA256.fullmatch(sha256):
            raise ProblemError("digest_mismatch", "X-Shunter-Sha256 is not a SHA-256 in hexadecimal digits")

        def store(pieces: Iterable[bytes]) -> int:
            return service.objects.put(name, pieces, sha256)

        try:
            await service.transfers.pour(request, store)
        except BadDigest as bad:
            raise ProblemError("digest_mismatch", str(bad)) from None
        except BadKey as bad:
            raise ProblemError("bad_request", str(bad)) from None
        return Response(content=b"", status_code=201, media_type="text/plain")

    @get("/{key:path}")
    async def read(
        self,
        key: FromPath[str],
        service: NamedDependency[Service],
        expires: Expires,
        signature: Signature,
        range_: Range = None,
    ) -> Response[bytes]:
        """The bytes of the object, or a range of them."""
        name = _allowed(service, "GET", key, expires, signature)
        try:
            size = await service.transfers.run(lambda: service.objects.size(name))
        except (NotFound, BadKey):
            raise not_found("object", name[:200]) from None
        answer = download(
            service, [Piece(name, size)], media_type="application/octet-stream", conditions=Conditions(range_)
        )
        return cast("Response[bytes]", answer)


def _allowed(service: Service, method: str, key: str, expires: str, signature: str) -> str:
    name = key.removeprefix("/")
    if not signing.verify(service.signing_key, method, name, expires=expires, signature=signature, now=time.time()):
        raise ProblemError("signature_invalid", "ask for a new URL with POST /v1/node/grants")
    return name
