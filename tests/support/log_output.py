"""Output of a job as an agent's uploads leave it, and a reader of it."""

from __future__ import annotations

from typing import Any, Literal

from shunter_schemas.ids import new_id
from shunter_schemas.node_sync import LogChunk
from shunter_store.report import logs
from support.service_app import App


class Output:
    """Writes pieces of a job's output as an agent's uploads would leave them."""

    def __init__(self, app: App, job_id: str) -> None:
        self._app = app
        self._job_id = job_id
        self._offsets: dict[tuple[int, str, int, str], int] = {}

    def add(
        self,
        text: str | bytes,
        *,
        rank: int = 0,
        stream: Literal["stdout", "stderr", "setup"] = "stdout",
        generation: int = 1,
        journal: str = "j",
        offset: int | None = None,
    ) -> None:
        """A piece. `offset`: not behind the last one of its file, as agents send them, but there."""
        data = text.encode() if isinstance(text, str) else text
        file = (rank, stream, generation, journal)
        if offset is None:
            offset = self._offsets.get(file, 0)
            self._offsets[file] = offset + len(data)
        key = f"{self._job_id}/{generation}/logs/{new_id('obj')}"
        self._app.service.objects.put(key, [data])
        chunk = LogChunk(
            rank=rank,
            stream=stream,
            offset=offset,
            length=len(data),
            lines=data.count(b"\n"),
            object=key,
            first_at=1000.0,
            last_at=1000.0,
        )
        self._app.database.write(lambda conn: logs.add_chunk(conn, self._job_id, generation, journal, chunk))


class Reader:
    """Asks for the output of one job."""

    def __init__(self, app: App, job_id: str) -> None:
        self._http = app.http
        self._url = f"/v1/jobs/{job_id}/logs"

    async def page(self, **params: Any) -> dict[str, Any]:
        answer = await self._http.get(self._url, params=params)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def lines(self, **params: Any) -> list[str]:
        return [item["text"] for item in (await self.page(**params))["items"]]

    async def every_page(self, **params: Any) -> list[dict[str, Any]]:
        """From `line` on, each where the one before says; at most 1000."""
        pages = [await self.page(**params)]
        while pages[-1]["next_line"] <= pages[-1]["lines_total"]:
            assert pages[-1]["next_line"] > params.get("line", 0), "every page gets on"
            pages.append(await self.page(**{**params, "line": pages[-1]["next_line"]}))
            assert len(pages) < 1000
        return pages

    async def every_page_back(self, tail: int, **params: Any) -> list[dict[str, Any]]:
        """The last `tail` lines, first ones first; each page is what the one behind it left; at most 1000."""
        pages = [await self.page(tail=tail, **params)]
        behind = pages[0]["next_line"]
        while (first := pages[0]["first_line"]) > max(1, behind - tail):
            assert pages[0]["items"], "every page gets on"
            pages.insert(0, await self.page(**{**params, "tail": first - max(1, behind - tail), "before": first}))
            assert pages[0]["next_line"] == first
            assert len(pages) < 1000
        return pages

    async def text(self, *, range_: str | None = None, **params: Any) -> tuple[int, bytes]:
        headers = {"Accept": "text/plain", **({"Range": range_} if range_ else {})}
        answer = await self._http.get(self._url, params=params, headers=headers)
        assert answer.headers["Content-Type"].startswith("text/plain")
        return answer.status_code, answer.content
