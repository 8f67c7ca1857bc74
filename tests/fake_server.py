"""A small OpenAI-compatible server on this machine, which several tests make do what servers do wrong."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from apportion.policy.sampling import Sampling
from apportion.policy.server import TRIAL_PROMPT, Server
from apportion.policy.server_connection import Endpoint

END = 2
Body = dict[str, Any]
Reply = tuple[int, Any]
"""HTTP status and what is sent: as JSON, or text as it is; TRICKLE = one blank after another, None = nothing."""
TRICKLE = object()


def continuation(body: Body, index: int) -> tuple[list[int], str]:
    """What the fake model draws: a function of prompt, seed and place among the choices."""
    chance = random.Random(repr((body["prompt"], body["seed"], index)))
    length = chance.randint(1, body["max_tokens"])
    tokens = [chance.randrange(10, 90) for _ in range(length)]
    return ([*tokens[:-1], END], "stop") if length < body["max_tokens"] else (tokens, "length")


def answer(body: Body, choices: Sequence[tuple[list[int], str]]) -> Body:
    """As vLLM answers."""
    usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": sum(len(ids) for ids, _ in choices)}
    entries = [
        {"index": i, "text": "".join(map(chr, ids)), "finish_reason": reason, "token_ids": ids}
        for i, (ids, reason) in enumerate(choices)
    ]
    return {"choices": entries, "usage": usage}


def honest(body: Body) -> Reply:
    return 200, answer(body, [continuation(body, i) for i in range(body["n"])])


def without_ids(body: Body) -> Reply:
    status, said = honest(body)
    for choice in said["choices"]:
        del choice["token_ids"]
    return status, said


def in_turn(*replies: Callable[[Body], Reply]) -> Callable[[Body], Reply]:
    """Answer each request by the next function; the last one stays."""
    left = list(replies)
    return lambda body: (left.pop(0) if len(left) > 1 else left[0])(body)


def always(status: int, said: Any) -> Callable[[Body], Reply]:
    return lambda _: (status, said)


@dataclass
class Fake:
    """A server whose trial requests and others are answered by two functions; it remembers what it was asked."""

    reply: Callable[[Body], Reply] = honest
    trial: Callable[[Body], Reply] = honest
    models: Reply = (200, {"data": [{"id": "tiny", "root": "/models/tiny", "created": 1}]})
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[Body] = field(default_factory=list)
    tried: list[Body] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    running: int = 0
    most: int = 0
    url: str = ""
    lock: Any = field(default_factory=threading.Lock)

    def respond(self, body: Body) -> Reply:
        if body["prompt"] == list(TRIAL_PROMPT):
            self.tried.append(body)
            return self.trial(body)
        with self.lock:
            self.asked.append(body)
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            return self.reply(body)
        finally:
            with self.lock:
                self.running -= 1

    def engine(self, *, tokenizer: Any = None, seed: int = 0, **settings: Any) -> Server:
        settings = {"timeout": 30.0, "retries": 2, "pause": 0.0} | settings
        return Server(Endpoint(self.url, "tiny", **settings), Sampling(12, 0.5, 0.9), seed, tokenizer)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send(*self.server.fake.models)

    def do_POST(self) -> None:
        fake = self.server.fake
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fake.keys.add(self.headers["Authorization"])
        self.send(*fake.respond(body))

    def send(self, status: int, said: Any) -> None:
        if said is None:
            self.close_connection = True
            return
        if said is TRICKLE:
            self.trickle()
            return
        content = (said if isinstance(said, str) else json.dumps(said)).encode()
        self.send_response(status)
        for name, value in {**self.server.fake.headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def trickle(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        for _ in range(200):
            self.wfile.write(b" ")
            time.sleep(0.05)
        self.close_connection = True

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:  # the client has gone
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(fake: Fake) -> Iterator[Fake]:
    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.fake, listener.daemon_threads = fake, True
    fake.url = f"http://127.0.0.1:{listener.server_address[1]}/v1"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fake
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
