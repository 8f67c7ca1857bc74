"""Continuing prefixes through a server: a real one on this machine, which plays what servers do wrong."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from apportion.errors import InputError
from apportion.policy import server_connection
from apportion.policy.sampling import Sampling
from apportion.policy.server import CHOICES, Server
from apportion.policy.server_connection import Endpoint
from apportion.rollouts import Rollout, collate
from apportion.steps import splitters
from apportion.values.engine import Drawn, Prefix, Wanted
from apportion.values.monte_carlo import MonteCarlo
from apportion.values.rules import uniform
from fake_server import (
    END,
    TRICKLE,
    Body,
    Fake,
    Reply,
    always,
    answer,
    continuation,
    honest,
    in_turn,
    serving,
    without_ids,
)


def prefix(*tokens: int, sampled: int = 0) -> Prefix:
    return Prefix("g", tokens, sampled)


def wanted(count: int, samples: int = 1) -> list[Wanted]:
    return [Wanted(prefix(10, 20 + i), 0, samples) for i in range(count)]


def ordered(drawn: Iterator[Drawn]) -> list[Drawn]:
    return sorted(drawn, key=lambda one: (one.of, one.number))


def test_a_continuation_is_the_ids_that_the_server_drew_behind_the_ids_that_it_was_sent() -> None:
    with serving(Fake()) as fake:
        [drawn] = fake.engine().draw([Wanted(prefix(10, 11, 12, sampled=2), 3, 1)])
    [body] = fake.asked
    tokens, reason = continuation(body, 0)
    assert drawn == Drawn(0, 3, tuple(tokens), reason == "stop", cost=len(tokens))
    assert body["prompt"] == [10, 11, 12]


def test_the_server_is_told_the_sampling_and_to_add_nothing_of_its_own() -> None:
    with serving(Fake()) as fake:
        list(fake.engine().draw([Wanted(prefix(10, 11, sampled=4), 0, 2)]))
    [body] = fake.asked
    told = {key: body[key] for key in ("model", "max_tokens", "n", "temperature", "top_p")}
    assert told == {"model": "tiny", "max_tokens": 8, "n": 2, "temperature": 0.5, "top_p": 0.9}
    assert (body["top_k"], body["min_p"], body["repetition_penalty"]) == (-1, 0.0, 1.0)


def test_a_continuation_may_have_what_the_prefix_left_of_an_answer_and_at_least_one_token() -> None:
    engine = Server(Endpoint("http://127.0.0.1:9/v1", "tiny"), Sampling(12))
    assert [engine.limit(prefix(1, sampled=n)) for n in (0, 5, 12, 40)] == [12, 7, 1, 1]


def test_an_answer_that_was_cut_off_and_one_that_ended_are_told_apart() -> None:
    with serving(Fake()) as fake:
        drawn = ordered(fake.engine().draw([Wanted(prefix(10, 11), 0, 64)]))
    assert {one.ended for one in drawn} == {True, False}
    assert all(one.ended == (one.tokens[-1] == END) for one in drawn)
    assert all(len(one.tokens) == 12 for one in drawn if not one.ended)


def test_continuations_of_a_prefix_share_requests_of_up_to_eight_and_keep_their_numbers() -> None:
    with serving(Fake()) as fake:
        drawn = ordered(fake.engine().draw([Wanted(prefix(10, 11), 5, 19), Wanted(prefix(10), 0, 1)]))
    assert sorted(body["n"] for body in fake.asked) == [1, 3, 8, 8]
    assert [(one.of, one.number) for one in drawn] == [*((0, 5 + i) for i in range(19)), (1, 0)]
    first = next(body for body in fake.asked if body["n"] == 3)
    assert [list(one.tokens) for one in drawn[16:19]] == [continuation(first, i)[0] for i in range(3)]


def copies(body: Body) -> Reply:
    return 200, answer(body, [continuation(body, 0)] * body["n"])


@pytest.mark.parametrize(
    "trial",
    [
        pytest.param(lambda body: honest(body | {"n": 1}), id="ignores n"),
        pytest.param(copies, id="gives copies"),
        pytest.param(lambda body: honest(body) if body["n"] == 1 else (400, {"message": "n?"}), id="refuses n"),
        pytest.param(lambda body: honest(body) if body["n"] == 1 else (500, "n > slots"), id="fails at n"),
    ],
)
def test_a_server_that_draws_one_at_a_time_gets_a_request_for_every_continuation(
    trial: Callable[[Body], Reply],
) -> None:
    with serving(Fake(trial=trial)) as fake:
        drawn = list(fake.engine().draw(wanted(2, samples=3)))
    assert [body["n"] for body in fake.asked] == [1] * 6
    assert len({body["seed"] for body in fake.asked}) == 6
    assert len({one.tokens for one in drawn}) == 6


def test_the_same_call_draws_the_same_and_a_seed_a_prefix_or_a_number_of_its_own_something_else() -> None:
    with serving(Fake()) as fake:
        engine = fake.engine()
        first = ordered(engine.draw(wanted(3, samples=4)))
        again = ordered(fake.engine(concurrency=1).draw(wanted(3, samples=4)))
        other = ordered(fake.engine(seed=1).draw(wanted(3, samples=4)))
        later = ordered(engine.draw([replace(want, first=4) for want in wanted(3, samples=4)]))
    assert first == again
    seeds = [body["seed"] for body in fake.asked]
    assert set(seeds[:3]) == set(seeds[3:6])
    assert len(set(seeds)) == 9
    assert not {one.tokens for one in first} & {one.tokens for one in [*other, *later] if len(one.tokens) > 3}
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_the_server_is_tried_out_once() -> None:
    with serving(Fake()) as fake:
        engine = fake.engine()
        list(engine.draw(wanted(2)))
        list(engine.draw(wanted(2)))
    assert [(body["n"], body["max_tokens"]) for body in fake.tried] == [(1, 16), (CHOICES, 16)]


def test_nothing_wanted_is_nothing_asked() -> None:
    engine = Server(Endpoint("http://127.0.0.1:9/v1", "tiny"), Sampling(12))
    assert list(engine.draw([Wanted(prefix(1), 0, 0)])) == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        pytest.param(always(500, {"error": {"message": "out of\nmemory"}}), "HTTP 500: out of memory", id="500"),
        pytest.param(always(503, "loading"), "HTTP 503: loading", id="503"),
        pytest.param(always(429, {"detail": "queue full"}), "HTTP 429: queue full", id="429"),
        pytest.param(always(200, None), "Server disconnected", id="connection dropped"),
        pytest.param(always(200, '{"choices": [{"ind'), 'no JSON: \'{"choices": \\[{"ind\'', id="malformed"),
        pytest.param(always(200, {"choices": [{"index": 0}]}), "no completions: {", id="no completions"),
        pytest.param(always(200, [1]), "no completions: \\[1\\]", id="another shape"),
        pytest.param(
            lambda body: (200, answer(body, [([5], "abort")])), "completions that ended with \\['abort'\\]", id="abort"
        ),
    ],
)
def test_a_fault_that_may_pass_is_waited_out_and_one_that_stays_ends_it(
    fault: Callable[[Body], Reply], said: str
) -> None:
    with serving(Fake()) as fake:
        asked = [Wanted(prefix(10, 20), 0, 1)]
        expected = list(fake.engine().draw(asked))
        fake.reply = in_turn(fault, fault, honest)
        assert list(fake.engine().draw(asked)) == expected
        fake.asked.clear()
        fake.reply = fault
        with pytest.raises(InputError, match=f"asked for 1 continuations of 2 tokens of group 'g' 3 times .*{said}"):
            list(fake.engine().draw(asked))
    assert len(fake.asked) == 3


def test_a_server_that_is_silent_is_given_up_after_its_time() -> None:
    held = threading.Event()

    def silent(body: Body) -> Reply:
        held.wait(30)
        return honest(body)

    with serving(Fake(trial=silent)) as fake:
        with pytest.raises(InputError, match=r"2 times .* the last was: no whole answer in 0.5 seconds; 0 of 1"):
            list(fake.engine(timeout=0.5, retries=1).draw(wanted(1)))
        held.set()
    assert len(fake.tried) == 2


def test_a_server_that_trickles_is_given_up_after_its_time_too() -> None:
    slow = Fake(trial=always(200, TRICKLE))
    with (
        serving(slow) as fake,
        pytest.raises(InputError, match=r"1 times .* the last was: no whole answer in 0.5 seconds"),
    ):
        list(fake.engine(timeout=0.5, retries=0).draw(wanted(1)))


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0), ("", 0.0)],
    ids=["seconds", "date", "nothing"],
)
def test_the_seconds_of_retry_after_are_read(monkeypatch: pytest.MonkeyPatch, header: str, seconds: float) -> None:
    heard = []
    monkeypatch.setattr(server_connection, "_pause", lambda first, attempt, least: heard.append(least) or 0.0)
    with serving(Fake(reply=in_turn(always(429, "busy"), honest), headers={"Retry-After": header})) as fake:
        assert len(list(fake.engine().draw(wanted(1)))) == 1
    assert heard == [seconds]


def test_a_refusal_ends_at_once_with_the_servers_own_words() -> None:
    too_long = Fake(reply=always(400, {"error": {"message": "prompt of 2 tokens is too long"}}))
    with serving(too_long) as fake, pytest.raises(InputError) as refused:
        list(fake.engine(concurrency=1).draw(wanted(5)))
    assert str(refused.value) == (
        f"server {fake.url} was asked for 1 continuations of 2 tokens of group 'g' and refused, HTTP 400: prompt of 2 "
        "tokens is too long; 0 of 5 continuations came"
    )
    assert len(fake.asked) == 1


def test_what_had_come_when_the_server_died_stays_and_the_error_says_how_to_go_on() -> None:
    with serving(Fake()) as fake:
        fake.reply = in_turn(*[honest] * 3, always(200, None))
        came: list[Drawn] = []
        with pytest.raises(InputError) as died:
            came.extend(fake.engine(concurrency=1, retries=1).draw(wanted(8, samples=2)))
    assert [(one.of, one.number) for one in came] == [(of, number) for of in range(3) for number in range(2)]
    assert str(died.value) == (
        f"server {fake.url} was asked for 2 continuations of 2 tokens of group 'g' 2 times and gave no answer that can "
        "be used; the last was: Server disconnected without sending a response.; 6 of 16 continuations came, and the "
        "same command goes on from there"
    )


def test_a_server_that_is_not_there_is_named() -> None:
    with serving(Fake()) as fake:
        pass
    with pytest.raises(InputError, match=f"server {fake.url} was asked to list its models 3 times .*; 0 of 4"):
        list(fake.engine().draw(wanted(4)))


def test_a_server_that_takes_no_token_ids_is_refused_and_not_asked_for_continuations() -> None:
    said = "refused, HTTP 422: prompt: string expected; a server is needed that takes prompts of token ids"
    text_only = Fake(trial=always(422, {"detail": "prompt: string expected"}))
    with serving(text_only) as fake, pytest.raises(InputError, match=said):
        list(fake.engine().draw(wanted(4)))
    assert fake.asked == []


def test_a_server_that_counts_another_prompt_than_it_was_sent_is_refused() -> None:
    def as_text(body: Body) -> Reply:
        return honest(body | {"prompt": list(str(body["prompt"]))})

    said = "a prompt of 3 tokens was sent and the server counted 9"
    with serving(Fake(trial=as_text)) as fake, pytest.raises(InputError, match=said):
        list(fake.engine().draw(wanted(1)))


class Characters:
    """A tokenizer of single characters."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [0] * add_special_tokens + [ord(character) for character in text]


def test_a_server_that_gives_no_ids_is_refused_and_with_a_tokenizer_its_text_is_encoded() -> None:
    with serving(Fake(reply=without_ids, trial=without_ids)) as fake:
        with pytest.raises(InputError, match=r"gives no token ids back .* give a tokenizer"):
            list(fake.engine().draw(wanted(1)))
        drawn = ordered(fake.engine(tokenizer=Characters()).draw(wanted(1, samples=3)))
    assert [list(one.tokens) for one in drawn] == [continuation(fake.asked[0], i)[0] for i in range(3)]
    assert [one.cost for one in drawn] == [len(one.tokens) for one in drawn]


def test_a_server_that_stops_giving_ids_is_refused() -> None:
    said = "gave token ids at first, and now it gives none; 0 of 1 continuations came"
    with serving(Fake(reply=without_ids)) as fake, pytest.raises(InputError, match=said):
        list(fake.engine().draw(wanted(1)))


def test_monte_carlo_values_rest_on_what_the_server_draws() -> None:
    batch = collate([Rollout([10, 11, 12], [False, True, True], "g", 1.0)])
    steps = splitters.every_token(batch)
    with serving(Fake()) as fake:
        source = MonteCarlo(fake.engine(), lambda _, tokens: float(tokens[-1] == END), uniform(4), pooled=False)
        found = source.estimate(batch, steps)
    drawn = [[continuation(body, i) for i in range(4)] for body in sorted(fake.asked, key=lambda body: body["prompt"])]
    assert found.value.tolist() == [[sum(reason == "stop" for _, reason in row) / 4 for row in drawn]]
    assert found.spent == sum(len(tokens) for row in drawn for tokens, _ in row)
    assert sorted(body["max_tokens"] for body in fake.asked) == [11, 12]


def test_no_more_requests_run_at_a_time_than_agreed_and_as_many_do() -> None:
    together = threading.Barrier(3)

    def meet(body: Body) -> Reply:
        together.wait(30)
        time.sleep(0.1)  # for a fourth to come, if one does
        return honest(body)

    with serving(Fake(reply=meet)) as fake:
        assert len(list(fake.engine(concurrency=3).draw(wanted(9)))) == 9
    assert fake.most == 3


def test_a_continuation_is_yielded_while_others_are_still_running() -> None:
    first_is_here = threading.Event()

    def second_waits(body: Body) -> Reply:
        if body["prompt"] == [10, 21]:
            assert first_is_here.wait(30)
        return honest(body)

    with serving(Fake(reply=second_waits)) as fake:
        drawing = fake.engine(concurrency=2).draw(wanted(2))
        assert next(drawing).of == 0
        first_is_here.set()
        assert [one.of for one in drawing] == [1]


def test_closing_early_stops_the_requests_and_leaves_no_thread() -> None:
    held = threading.Event()

    def later_hang(body: Body) -> Reply:
        if body["prompt"] != [10, 20]:
            held.wait(30)
        return honest(body)

    with serving(Fake(reply=later_hang)) as fake:
        drawing = fake.engine(concurrency=4).draw(wanted(20))
        next(drawing)
        drawing.close()
        assert not [thread for thread in threading.enumerate() if thread.name == "apportion-server"]
        held.set()
    assert len(fake.asked) <= 5


def test_it_draws_inside_a_running_event_loop_too() -> None:
    async def notebook() -> list[Drawn]:
        return list(fake.engine().draw(wanted(2)))

    with serving(Fake()) as fake:
        assert len(asyncio.run(notebook())) == 2


def test_the_fingerprint_is_of_model_sampling_and_seed_and_not_of_the_address() -> None:
    with serving(Fake()) as here, serving(Fake()) as there:
        there.models = (200, {"data": [{"id": "tiny", "root": "/models/tiny", "created": 2, "permission": ["x"]}]})
        engine = here.engine()
        same = [engine, there.engine(concurrency=2, timeout=9.0)]
        others = [here.engine(seed=1), *(replace(engine, sampling=s) for s in (Sampling(13, 0.5, 0.9), Sampling(12)))]
        prints = [one.fingerprint for one in [*same, *others]]
        there.models = (200, {"data": [{"id": "tiny", "root": "/models/tiny-step-20"}]})
        prints.append(there.engine().fingerprint)
    assert prints[0] == prints[1]
    assert len(set(prints)) == 5
    assert len(prints[0]) == 64


def test_a_model_that_is_not_served_is_refused_with_those_that_are() -> None:
    said = r"has no model 'tiny'; did you mean 'tinny'\? known: tinny; 0 of 1"
    with serving(Fake(models=(200, {"data": [{"id": "tinny"}]}))) as fake, pytest.raises(InputError, match=said):
        list(fake.engine().draw(wanted(1)))


def test_the_key_comes_from_the_environment_and_is_in_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APPORTION_SERVER_KEY", "sesame")
    locked = Fake(reply=always(401, {"error": {"message": "wrong key"}}))
    with serving(locked) as fake, pytest.raises(InputError, match="HTTP 401: wrong key") as refused:
        list(fake.engine().draw(wanted(1)))
    assert fake.keys == {"Bearer sesame"}
    assert "sesame" not in str(refused.value) + repr(fake.engine())


def test_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(InputError, match=r"pip install 'apportion\[server\]'"):
        list(Server(Endpoint("http://127.0.0.1:9/v1", "tiny"), Sampling(4)).draw(wanted(1)))
