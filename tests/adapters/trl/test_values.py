"""Monte-Carlo values inside TRL: continued by its own generation, or by a server, and judged by its rewards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("trl", reason="TRL is not installed: make test-trl")

from apportion import InputError
from apportion.adapters.trl import Continuations
from apportion.adapters.trl.values import Generation
from apportion.policy.server_connection import Endpoint
from apportion.values.engine import Prefix, Wanted
from fake_server import Fake, continuation, serving
from trl_runs import CHAIN, MARKS, correct, scored, trainer

pytestmark = MARKS


def test_credit_of_a_line_is_what_continuations_say_that_it_changed(tmp_path: Path) -> None:
    host = trainer(tmp_path, worth, recipe="vineppo", values=Continuations(samples=3))
    asked: list[str] = []

    def turn(prompts: list[list[int]], *more: Any) -> tuple[list[list[int]], None]:
        """Of a prompt at first the answer, then `no`; behind the answer's first line always `yes`."""
        texts = host.processing_class.batch_decode(prompts)
        written = ["=" if "A1" in text else "-" if asked else "A1\nB2\n" for text in texts]
        asked.extend(texts)
        return host.processing_class(written, add_special_tokens=False)["input_ids"], None

    host._generate_single_turn = turn
    output = scored(host, 4)
    # the prompt is worth 0, the first line makes it 1, and the answer was worth 0.5
    assert output["advantages"].tolist() == [[1.0] * 3 + [-0.5] * 3] * 4
    assert len(asked) == 4 + 3 * 2  # equal prefixes are continued once


def worth(completions: list[str], **more: Any) -> list[float]:
    return [1.0 if "=" in text else 0.5 if "B2" in text else 0.0 for text in completions]


def test_where_every_answer_is_right_no_line_changes_anything(tmp_path: Path) -> None:
    def right(completions: list[str], **more: Any) -> list[float]:
        return [1.0] * len(completions)

    output = scored(trainer(tmp_path, right, recipe="vineppo", values=Continuations(samples=1)), 8)
    assert not bool(output["advantages"].any())


def test_continuations_leave_no_trace_in_the_logs_of_trl(tmp_path: Path) -> None:
    def logging(
        prompts: list[str], completions: list[str], log_extra: Any, log_metric: Any, **more: Any
    ) -> list[float]:
        log_extra("text", completions)
        log_metric("asked", len(completions))
        return correct(prompts, completions, **more)

    host = trainer(tmp_path, logging, recipe="vineppo", values=Continuations(samples=1))
    scored(host, 8)
    assert len(host._logs["extra"]["text"]) == 8
    assert host._metrics["train"]["asked"] == [8.0]
    assert not host._pending_extra_logs
    assert not host._pending_metrics


def test_the_engine_continues_a_prefix_within_what_it_may_still_write(tmp_path: Path) -> None:
    host = trainer(tmp_path, max_completion_length=20)
    ids = host.processing_class(CHAIN.held_out(1)[0].prompt)["input_ids"]
    prefixes = [Prefix(0, (*ids, *ids[:sampled]), sampled) for sampled in (0, 5, 17)]
    engine = Generation(host, frozenset({host.processing_class.eos_token_id}))
    drawn = list(engine.draw([Wanted(prefix, 3, 12) for prefix in prefixes]))
    assert sorted((one.of, one.number) for one in drawn) == [(of, n) for of in range(3) for n in range(3, 15)]
    for one in drawn:
        most = 20 - prefixes[one.of].sampled
        assert 1 <= len(one.tokens) == one.cost <= most
        assert one.ended == (one.tokens[-1] == host.processing_class.eos_token_id)
        assert one.ended or len(one.tokens) == most
    assert host.generation_config.max_new_tokens == 20


def test_a_server_may_continue(tmp_path: Path) -> None:
    with serving(Fake()) as fake:
        server = Endpoint(fake.url, "tiny")
        host = trainer(tmp_path, recipe="vineppo", values=Continuations(samples=2, server=server))
        output = scored(host, 4)
    assert bool(output["advantages"].isfinite().all())
    longest = max(len(body["prompt"]) + body["max_tokens"] for body in fake.asked)
    assert longest == output["prompt_ids"].shape[1] + host.max_completion_length
    assert continuation(fake.asked[0], 0)  # it was the fake that drew


def test_what_scores_steps_cannot_judge_continuations(tmp_path: Path) -> None:
    def per_line(step_texts: list[list[str]], **more: Any) -> list[list[float]]:
        return [[0.5] * len(texts) for texts in step_texts]

    host = trainer(tmp_path, per_line, recipe="vineppo", values=Continuations(samples=1))
    with pytest.raises(InputError, match="'per_line' scores steps, and values=Continuations"):
        scored(host, 4)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        pytest.param({"samples": 0}, "samples=0\\): expected a whole number from 1 on", id="no samples"),
        pytest.param({"samples": True}, "samples=True", id="no number"),
        pytest.param({"budget": -1}, "budget=-1", id="negative budget"),
        pytest.param({"samples": 3, "error": 0.2}, "give `samples` or `error`", id="both"),
        pytest.param({"error": 0.7}, "standard error", id="too large an error"),
        pytest.param({"boundaries": "evry"}, "did you mean 'every'", id="unknown boundaries"),
    ],
)
def test_settings_out_of_range_are_told_before_training(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        Continuations(**asked)


def test_to_an_error_prefixes_get_as_many_as_they_take(tmp_path: Path) -> None:
    torch.manual_seed(0)
    host = trainer(tmp_path, recipe="vineppo", values=Continuations(error=0.25, boundaries="every"))
    assert bool(scored(host, 8)["advantages"].any())


def test_continuations_are_judged_in_lots_of_what_trl_samples(tmp_path: Path) -> None:
    lots: list[int] = []

    def counted(completions: list[str], **more: Any) -> list[float]:
        lots.append(len(completions))
        return [0.5] * len(completions)

    host = trainer(tmp_path, counted, recipe="vineppo", values=Continuations(samples=6))
    scored(host, 8)
    assert len(lots) > 3
    assert max(lots) == 16


def test_a_judge_who_fails_now_and_then_ends_no_training(tmp_path: Path) -> None:
    asked: list[str] = []

    def flaky(prompts: list[str], completions: list[str], **more: Any) -> list[float | None]:
        asked.extend(completions)
        scores = correct(prompts, completions, **more)
        return [None if len(asked) > 8 and n % 3 == 0 else score for n, score in enumerate(scores)]

    host = trainer(tmp_path, flaky, recipe="vineppo", values=Continuations(samples=1))
    with pytest.warns(UserWarning, match="no continuation could be scored"):
        output = scored(host, 8)
    assert bool(output["advantages"].isfinite().all())
