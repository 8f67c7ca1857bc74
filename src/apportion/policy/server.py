"""An OpenAI-compatible model server (vLLM, SGLang, llama.cpp) as an engine that continues prefixes.

Prefixes go out as token ids and continuations come back as token ids, so nothing is tokenized on the way. A server that
gives no ids back needs a tokenizer, which encodes the text that it gives; that need not be the tokens that the model
drew, and lacks the end-of-text token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from apportion.errors import InputError
from apportion.policy.sampling import Sampling
from apportion.policy.server_answers import EXACT_WAYS, Continuation, Encoder, Reader, Way, encoded
from apportion.policy.server_connection import Connection, Endpoint, GaveUpError, RefusedError, connect
from apportion.policy.server_thread import Put, side_by_side, stream
from apportion.values.engine import Drawn, Prefix, Wanted

CHOICES = 8
"""Continuations of a prefix that one request asks for at most."""
PLAIN = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Nothing but temperature and top_p: servers take these from the model's folder, or set their own, where not told."""
TRIAL_PROMPT, TRIAL_LENGTH = (1, 2, 3), 16
IDENTITY = ("id", "root", "parent", "meta")
"""What servers say about a model that tells which it is; the rest is chance, time and permissions."""


@dataclass(frozen=True)
class _Abilities:
    """What a server says that it serves, how it gives token ids, and how many choices a request may ask for."""

    model: dict[str, Any]
    way: Way
    choices: int


@dataclass(frozen=True)
class Server:
    """Continues prefixes through `/v1/completions`.

    sampling.max_new_tokens: of an answer as a whole, so a continuation may have what its prefix left of them.
    `sampling.max_rows` says nothing here: `endpoint.concurrency` requests are under way at a time.

    At its first use the server is tried out on a few tokens, which no `cost` counts. One that does not take prompts of
    token ids is refused. One that ignores `n`, or answers with copies, gets a request for every continuation; any other
    is asked for up to 8 of a prefix at once.

    seed: a request's own is made of it, the prefix, and the number of the first continuation. So the same call draws
    the same, as far as the server keeps to seeds (one that batches may not to the last bit); where several come of one
    request, another call that begins at another number does not.

    An end-of-text token is kept in a continuation where the server gives its id (vLLM does). The key for the server is
    read from the environment variable APPORTION_SERVER_KEY.
    """

    endpoint: Endpoint
    sampling: Sampling
    seed: int = 0
    tokenizer: Encoder | None = None

    @cached_property
    def fingerprint(self) -> str:
        """Of what the server says about its model, the sampling settings and the seed; not of where it is."""
        model = [(key, self._abilities.model.get(key)) for key in IDENTITY]
        sampling = (self.sampling.max_new_tokens, self.sampling.temperature, self.sampling.top_p)
        return hashlib.sha256(repr((model, sampling, self.seed, self._abilities.way.exact)).encode()).hexdigest()

    def limit(self, prefix: Prefix) -> int:
        return self.sampling.left(prefix.sampled)

    def draw(self, wanted: Sequence[Wanted]) -> Iterator[Drawn]:
        asked, came = sum(want.count for want in wanted), 0
        if not asked:
            return
        try:
            requests = list(_requests(wanted, self._abilities.choices))
            with closing(stream(partial(self._fetch, requests))) as drawn:
                for found in drawn:
                    came += 1
                    yield found
        except GaveUpError as error:
            raise InputError(
                f"{error}; {came} of {asked} continuations came, and the same command goes on from there"
            ) from error
        except InputError as error:
            raise InputError(f"{error}; {came} of {asked} continuations came") from error

    async def _fetch(self, requests: Sequence[tuple[int, Wanted]], put: Put[Drawn]) -> None:
        pending = iter(requests)

        async def work() -> None:
            for of, want in pending:
                for number, found in enumerate(await self._continue(connection, want), want.first):
                    put(Drawn(of, number, found.tokens, found.ended, cost=len(found.tokens)))

        async with connect(self.endpoint) as connection:
            await side_by_side(work, min(self.endpoint.concurrency, len(requests)))

    async def _continue(self, connection: Connection, want: Wanted) -> list[Continuation]:
        prefix = want.prefix
        asked = f"for {want.count} continuations of {len(prefix.tokens)} tokens of group {prefix.group!r}"
        reader = Reader(self._abilities.way, len(prefix.tokens), want.count, self.limit(prefix))
        found = await self._complete(connection, prefix.tokens, want.first, reader, asked)
        if found is None:
            raise InputError(f"server {self.endpoint.url} gave token ids at first, and now it gives none")
        return found

    async def _complete(
        self, connection: Connection, tokens: Sequence[int], number: int, reader: Reader, asked: str
    ) -> list[Continuation] | None:
        settings = {
            "max_tokens": reader.limit,
            "n": reader.count,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "seed": _seed(self.seed, tokens, number),
            **PLAIN,
            **reader.way.settings,
        }
        return await connection.complete(tokens, settings, reader, asked)

    @cached_property
    def _abilities(self) -> _Abilities:
        async def try_out(put: Put[_Abilities]) -> None:
            async with connect(self.endpoint) as connection:
                model = await connection.model()
                way = await self._way(connection)
                put(_Abilities(model, way, await self._choices(connection, way)))

        [found] = stream(try_out)
        return found

    async def _way(self, connection: Connection) -> Way:
        """The first way in which the server gives token ids."""
        refusal = InputError(
            f"server {self.endpoint.url} gives no token ids back (asked with `return_token_ids`, and with `logprobs`); "
            "give a tokenizer, and the text is encoded"
        )
        for way in (*EXACT_WAYS, *([encoded(self.tokenizer)] if self.tokenizer else [])):
            try:
                if await self._try(connection, way, 1):
                    return way
            except RefusedError as error:
                refusal = InputError(f"{error}; a server is needed that takes prompts of token ids as they are")
        raise refusal

    async def _choices(self, connection: Connection, way: Way) -> int:
        """How many continuations a request may ask for: one where the server gives no more, or copies."""
        try:
            found = await self._try(connection, way, CHOICES)
        except (RefusedError, GaveUpError):
            return 1
        return CHOICES if found and len(set(found)) > 1 else 1

    async def _try(self, connection: Connection, way: Way, count: int) -> list[Continuation] | None:
        reader = Reader(way, len(TRIAL_PROMPT), count, TRIAL_LENGTH)
        return await self._complete(connection, TRIAL_PROMPT, 0, reader, "to continue a prompt of token ids")


def _requests(wanted: Sequence[Wanted], choices: int) -> Iterator[tuple[int, Wanted]]:
    """What each request asks for, with the place in `wanted` that it is for."""
    for of, want in enumerate(wanted):
        for first in range(want.first, want.first + want.count, choices):
            yield of, replace(want, first=first, count=min(choices, want.first + want.count - first))


def _seed(seed: int, tokens: Sequence[int], number: int) -> int:
    """31 bits, which every server takes."""
    digest = hashlib.sha256(repr((seed, tuple(tokens), number)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
