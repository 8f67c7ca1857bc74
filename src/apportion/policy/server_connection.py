"""How a server is reached, how often it is asked again, and what is said where it gives nothing."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from apportion.errors import InputError, did_you_mean

API_KEY = "APPORTION_SERVER_KEY"
"""The environment variable that holds the key of a server that wants one."""
LONGEST_PAUSE = 60.0

Read = TypeVar("Read")


class UnusableError(Exception):
    """An answer that says nothing, but may come right when it is asked for again."""


class RefusedError(InputError):
    """The server is there and will not do what it is asked."""


class GaveUpError(InputError):
    """The server gave no usable answer, however often it was asked."""


@dataclass(frozen=True)
class Endpoint:
    """Where an OpenAI-compatible server is, what it should serve, and how patiently it is asked.

    url: up to and with `/v1`. model: its name there. concurrency: requests under way at a time. timeout: seconds that a
    request may take. retries: how often it is sent again after a lost connection, a time-out, HTTP 429 or 5xx, or an
    answer that cannot be read. pause: seconds before the first of these, twice as many before each further one, half
    to all of it by chance; as many as the server's Retry-After says, if that is more; never above a minute.
    """

    url: str
    model: str
    concurrency: int = 32
    timeout: float = 300.0
    retries: int = 4
    pause: float = 1.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"a server's address looks like http://127.0.0.1:8000/v1, {self.url!r} was given")
        if "@" in parts.netloc:
            raise InputError(f"the server's address holds a password; put the key into {API_KEY} instead")
        if self.concurrency < 1 or self.retries < 0 or not self.timeout > 0 or not self.pause >= 0:
            raise InputError(
                "a server is asked with concurrency >= 1, timeout > 0, retries >= 0 and pause >= 0; given were "
                f"{self.concurrency}, {self.timeout:g}, {self.retries} and {self.pause:g}"
            )


@asynccontextmanager
async def connect(endpoint: Endpoint) -> AsyncIterator[Connection]:
    """Open connections to a server, and close them all in the end."""
    try:
        from openai import AsyncOpenAI
    except ImportError as error:
        raise InputError("a model server needs openai: pip install 'apportion[server]'") from error
    key = os.environ.get(API_KEY) or "none"
    async with AsyncOpenAI(base_url=endpoint.url, api_key=key, timeout=None, max_retries=0) as client:
        yield Connection(endpoint, client)


class Connection:
    """A server that is asked again where that may help."""

    def __init__(self, endpoint: Endpoint, client: Any) -> None:
        self._endpoint, self._client = endpoint, client

    async def model(self) -> dict[str, Any]:
        """What the server says about its model."""
        models = await self._ask(self._client.models.with_raw_response.list, _models, "to list its models")
        name = self._endpoint.model
        if name not in models:
            raise RefusedError(f"server {self._endpoint.url} has no model {name!r}{did_you_mean(name, models)}")
        return models[name]

    async def complete(
        self, prompt: Sequence[int], settings: Mapping[str, Any], read: Callable[[Any], Read], asked: str
    ) -> Read:
        """Have the model continue a prompt; `read` makes of the answer what is wanted, or raises UnusableError."""
        create = self._client.completions.with_raw_response.create
        model = self._endpoint.model
        return await self._ask(lambda: create(model=model, prompt=list(prompt), extra_body=settings), read, asked)

    async def _ask(self, send: Callable[[], Awaitable[Any]], read: Callable[[Any], Read], asked: str) -> Read:
        from openai import APIConnectionError, APIStatusError

        endpoint, said, least = self._endpoint, "", 0.0
        for attempt in range(endpoint.retries + 1):
            if attempt:
                await asyncio.sleep(_pause(endpoint.pause, attempt, least))
            try:
                async with asyncio.timeout(endpoint.timeout):
                    answer = await send()
                return read(_json(answer.http_response.text))
            except APIStatusError as error:
                said, least = f"HTTP {error.status_code}: {_words(error)}", _retry_after(error)
                if error.status_code < 500 and error.status_code != 429:
                    raise RefusedError(f"server {endpoint.url} was asked {asked} and refused, {said}") from error
            except APIConnectionError as error:
                said, least = _short(str(error.__cause__ or error)) or type(error.__cause__).__name__, 0.0
            except TimeoutError:
                said, least = f"no whole answer in {endpoint.timeout:g} seconds", 0.0
            except UnusableError as error:
                said, least = str(error), 0.0
            except InputError as error:
                raise RefusedError(f"server {endpoint.url} was asked {asked}: {error}") from error
        raise GaveUpError(
            f"server {endpoint.url} was asked {asked} {endpoint.retries + 1} times and gave no answer that can be "
            f"used; the last was: {said}"
        )


def _pause(first: float, attempt: int, least: float) -> float:
    """Seconds before a further attempt; chance keeps those that failed together from coming back together."""
    grown = first * 2.0 ** (attempt - 1) * random.SystemRandom().uniform(0.5, 1.0)
    return min(max(grown, least), LONGEST_PAUSE)


def _retry_after(error: Any) -> float:
    seconds = error.response.headers.get("retry-after", "")
    return float(seconds) if seconds.isascii() and seconds.isdigit() else 0.0


def _words(error: Any) -> str:
    """The server's own."""
    body = error.body if isinstance(error.body, dict) else {}
    return _short(str(body.get("message") or body.get("detail") or error.response.text)) or "no reason given"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else line[:200] + " ..."


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UnusableError(f"no JSON: {_short(text)!r}") from error


def _models(answer: Any) -> dict[str, dict[str, Any]]:
    try:
        return {model["id"]: model for model in answer["data"]}
    except (KeyError, TypeError) as error:
        raise UnusableError(f"no list of models: {_short(json.dumps(answer))}") from error
