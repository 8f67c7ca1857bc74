"""Continuing prefixes through vLLM, which this starts, asks, and kills in the middle of its work.

Two environment variables say where things are: APPORTION_SERVER_PYTHON, an interpreter that has vLLM, and
APPORTION_SERVER_MODEL, a model in a Hugging Face folder.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from apportion.errors import InputError
from apportion.policy.causal import CausalPolicy
from apportion.policy.sampling import Sampling
from apportion.policy.server import CHOICES, Server
from apportion.policy.server_connection import Endpoint
from apportion.values.engine import Drawn, Prefix, Wanted

PYTHON, MODEL = os.environ.get("APPORTION_SERVER_PYTHON"), os.environ.get("APPORTION_SERVER_MODEL")
START_SECONDS = 240
TEXTS = [
    "The capital of France is",
    "2 + 2 =",
    "Once upon a time",
    "Water boils at",
    "The first prime numbers are",
    "My favourite colour is",
    "def add(a, b):",
    "To be or not to be,",
]

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        not (PYTHON and MODEL), reason="APPORTION_SERVER_PYTHON and APPORTION_SERVER_MODEL name no vLLM and no model"
    ),
]


@dataclass(frozen=True)
class Running:
    url: str
    process: subprocess.Popen[bytes]

    def engine(self, sampling: Sampling) -> Server:
        return Server(Endpoint(self.url, "tested", retries=1, pause=0.1), sampling)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    assert PYTHON
    assert MODEL
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", MODEL, "--served-model-name", "tested"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", "512"]
    command += ["--dtype", "float32", "--enforce-eager"]
    environment = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    environment.pop("PYTHONPATH", None)
    log = tmp_path_factory.mktemp("vllm") / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
    running = Running(f"http://127.0.0.1:{port}/v1", process)
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process, log)
        yield running
    finally:
        running.kill()


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(START_SECONDS):
        with suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        assert process.poll() is None, log.read_text()[-2000:]
        time.sleep(1)
    pytest.fail(f"vLLM did not start in {START_SECONDS} seconds: {log.read_text()[-2000:]}")


@pytest.fixture(scope="module")
def policy() -> CausalPolicy:
    assert MODEL
    return CausalPolicy.load(MODEL)


def wanted(policy: CausalPolicy, samples: int) -> list[Wanted]:
    return [Wanted(Prefix(text, tuple(policy.tokenizer(text)["input_ids"]), 0), 0, samples) for text in TEXTS]


def ordered(drawn: Iterator[Drawn]) -> list[Drawn]:
    return sorted(drawn, key=lambda one: (one.of, one.number))


def test_continuations_are_of_the_vocabulary_and_the_same_again(server: Running, policy: CausalPolicy) -> None:
    engine, asked = server.engine(Sampling(24)), wanted(policy, 4)
    drawn = ordered(engine.draw(asked))
    assert [(one.of, one.number) for one in drawn] == [(of, number) for of in range(8) for number in range(4)]
    assert all(0 <= token < len(policy.tokenizer) for one in drawn for token in one.tokens)
    assert all(one.ended or len(one.tokens) == 24 for one in drawn)
    assert all(len({one.tokens for one in drawn if one.of == of}) > 1 for of in range(8))
    assert ordered(engine.draw(asked)) == drawn


def test_a_request_may_ask_for_several(server: Running) -> None:
    assert server.engine(Sampling(24))._abilities.choices == CHOICES


def test_the_likeliest_continuation_is_that_of_the_model_in_this_process(server: Running, policy: CausalPolicy) -> None:
    asked = wanted(policy, 1)
    drawn = ordered(server.engine(Sampling(12, temperature=0.0)).draw(asked))
    likeliest = policy.sample(
        [want.prefix.tokens for want in asked], Sampling(12, temperature=1e-4), torch.Generator().manual_seed(0)
    )
    assert [list(one.tokens) for one in drawn] == [one.tokens for one in likeliest]
    assert [one.ended for one in drawn] == [one.ended for one in likeliest]


def test_an_answer_that_ended_keeps_its_end_of_text(server: Running, policy: CausalPolicy) -> None:
    question = tuple(policy.encode("Say yes."))
    drawn = list(server.engine(Sampling(200)).draw([Wanted(Prefix("yes", question, 0), 0, 16)]))
    assert any(one.ended for one in drawn)
    assert all((one.tokens[-1] in policy.ends) == one.ended for one in drawn)


def test_a_prefix_that_leaves_no_room_is_refused_in_the_servers_words(server: Running, policy: CausalPolicy) -> None:
    [want, *_] = wanted(policy, 1)
    long = replace(want, prefix=want.prefix._replace(tokens=want.prefix.tokens * 200))
    with pytest.raises(InputError, match=r"refused, HTTP 400: .*512.*; 0 of 1 continuations came"):
        list(server.engine(Sampling(24)).draw([long]))


def test_what_had_come_when_the_server_was_killed_stays(server: Running, policy: CausalPolicy) -> None:
    came: list[Drawn] = []

    def keep_and_kill() -> None:
        for one in server.engine(Sampling(64)).draw(wanted(policy, 64)):
            came.append(one)
            if len(came) == CHOICES:
                server.kill()

    with pytest.raises(InputError) as died:
        keep_and_kill()
    assert CHOICES <= len(came) < 512
    assert str(died.value).endswith(f"; {len(came)} of 512 continuations came, and the same command goes on from there")
