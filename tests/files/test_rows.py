"""Rows of a rollout file: every form and field, there and back, and every refusal in one line with its place."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.errors import InputError
from apportion.files import load, row_of, save
from apportion.ledger import apportion
from apportion.recipes import dr_grpo, vineppo
from apportion.rollouts import Rollout, Rollouts, collate
from batches import NAN, random_rows, row, types_unchecked

LEAST = {"response": "b c", "outcome": 1, "group": "g"}


def loaded(tmp_path: Path, *rows: dict[str, Any]) -> Rollouts:
    path = tmp_path / "rollouts.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return load(path)


def one(tmp_path: Path, **fields: Any) -> Rollout:
    """The rollout of a least row with these fields."""
    return loaded(tmp_path, LEAST | fields).rows()[0]


def pieces(rollout: Rollout) -> list[str]:
    assert rollout.text is not None
    assert rollout.offsets is not None
    return [rollout.text[start:end] for start, end in rollout.offsets]


def same(a: Rollouts, b: Rollouts) -> None:
    assert str(a.rows()) == str(b.rows())  # as text, since NaN is not equal to itself
    assert a.outcome.dtype == b.outcome.dtype


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
@settings(max_examples=25)
@given(rows=random_rows())
def test_what_is_saved_is_loaded(ending: str, rows: list[Rollout]) -> None:
    with types_unchecked(), tempfile.TemporaryDirectory() as folder:
        batch = collate(rows, dtype=torch.float64)
        path = Path(folder) / f"rollouts.{ending}"

        save(batch, path)

        same(load(path), batch)


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_field_that_only_a_later_rollout_has_is_saved(tmp_path: Path, ending: str) -> None:
    batch = collate([row("pa", outcome=1.0), row("pa", outcome=0.0, step_values=(0.5,))], dtype=torch.float64)
    path = tmp_path / f"rollouts.{ending}"

    save(batch, path)

    assert [back.step_values for back in load(path).rows()] == [None, (0.5,)]


def test_an_outcome_is_kept_as_it_was_written(tmp_path: Path) -> None:
    assert one(tmp_path, outcome=0.1).outcome == 0.1


def test_a_group_of_another_kind_is_saved_as_text(tmp_path: Path) -> None:
    batch = collate([row("a", outcome=1.0, group=("x", 1)), row("a", outcome=1.0, group=("x", 2))])

    save(batch, tmp_path / "rollouts.jsonl")

    assert load(tmp_path / "rollouts.jsonl").group_names == ("('x', 1)", "('x', 2)")


def test_the_least_row_gets_defaults(tmp_path: Path) -> None:
    rollout = one(tmp_path)

    assert rollout.action_mask == [True, True]
    assert (rollout.outcome, rollout.group, rollout.id, rollout.ended) == (1.0, "g", "0", True)
    assert (rollout.logprobs, rollout.step_rewards, rollout.step_values) == (None, None, None)


def test_fields_that_are_null_count_as_left_out(tmp_path: Path) -> None:
    names = ("schema", "id", "prompt", "action_mask", "token_logprobs", "turns", "text", "offsets", "ended")
    nulls = dict.fromkeys((*names, "step_rewards", "step_values", "end_value"))

    assert one(tmp_path, **nulls) == one(tmp_path)


def test_every_field_arrives(tmp_path: Path) -> None:
    rollout = one(
        tmp_path,
        schema=1,
        id="x",
        group=7,
        prompt=[5, 6],
        response=[7, 8, 9],
        outcome=-0.5,
        action_mask=[True, False, True],
        token_logprobs=[-0.25, None, 0],
        turns=[0, 0, 3, 4, 5],
        text="abcde",
        offsets=[[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]],
        ended=False,
        step_rewards=[1, 0.5],
        step_values=[0.25, 0.75],
        end_value=0.125,
    )

    assert (rollout.id, rollout.group, rollout.outcome, rollout.ended) == ("x", 7, -0.5, False)
    assert rollout.tokens == [5, 6, 7, 8, 9]
    assert rollout.action_mask == [False, False, True, False, True]
    assert rollout.turns == [0, 0, 3, 4, 5]
    assert pieces(rollout) == ["a", "b", "c", "d", "e"]
    assert rollout.step_rewards == (1.0, 0.5)
    assert rollout.step_values == (0.25, 0.75)
    assert rollout.end_value == 0.125
    assert rollout.logprobs is not None
    assert [None if math.isnan(p) else p for p in rollout.logprobs] == [None, None, -0.25, None, 0.0]


def test_no_outcome_is_not_an_outcome_of_0(tmp_path: Path) -> None:
    batch = loaded(tmp_path, LEAST | {"outcome": None}, LEAST | {"outcome": 0})

    assert batch.outcome.isnan().tolist() == [True, False]
    assert batch.votes.tolist() == [False, True]
    assert row_of(batch.rows()[0])["outcome"] is None


def test_words_of_plain_text_get_negative_ids_and_the_same_word_the_same_one(tmp_path: Path) -> None:
    batch = loaded(
        tmp_path,
        LEAST | {"prompt": "1 + 1?", "response": " 1 + 2"},
        LEAST | {"response": " 2"},
    )
    first, second = batch.rows()

    assert pieces(first) == ["1", " +", " 1", "?", " 1", " +", " 2"]
    assert first.tokens == [-1, -2, -3, -4, -3, -2, -5]
    assert first.action_mask == [False] * 4 + [True] * 3
    assert first.turns == [0] * 4 + [1] * 3
    assert second.tokens == [-5]


def test_a_newline_ends_its_word_whatever_spaces_stand_around_it(tmp_path: Path) -> None:
    assert pieces(one(tmp_path, response="a  \n  b\n\nc ")) == ["a", "  \n", "  b", "\n", "\n", "c", " "]


@given(prompt=st.text(), response=st.text())
def test_the_words_of_a_text_are_all_of_it(prompt: str, response: str) -> None:
    with types_unchecked(), tempfile.TemporaryDirectory() as folder:
        rollout = one(Path(folder), prompt=prompt, response=response)

    assert rollout.text == prompt + response
    assert "".join(pieces(rollout)) == prompt + response


def test_token_ids_come_without_text(tmp_path: Path) -> None:
    rollout = one(tmp_path, prompt="what", response=[3, 4])

    assert rollout.tokens == [-1, 3, 4]
    assert (rollout.text, rollout.offsets) == (None, None)


def test_token_ids_may_be_all_that_int64_holds(tmp_path: Path) -> None:
    assert one(tmp_path, response=[2**63 - 1, -(2**63)]).tokens == [2**63 - 1, -(2**63)]


def test_an_empty_prompt_leaves_the_text(tmp_path: Path) -> None:
    assert one(tmp_path, prompt=[]).text == "b c"


def test_of_chat_messages_only_the_assistants_were_sampled_with_its_tool_calls(tmp_path: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
    rollout = one(
        tmp_path,
        prompt=[{"role": "system", "content": "sys"}, {"role": "assistant", "content": "before"}],
        response=[
            {"role": "assistant", "content": "call", "tool_calls": [call]},
            {"role": "tool", "content": "four"},
            {"role": "assistant", "content": [{"type": "text", "text": "so "}, {"type": "text", "text": "4"}]},
            {"role": "user", "content": "thanks"},
        ],
    )
    words = pieces(rollout)

    sampled = [word for word, a in zip(words, rollout.action_mask, strict=True) if a]
    assert "".join(sampled) == 'call\nadd({"a": 2})so 4'
    assert rollout.text == 'sys\nbefore\ncall\nadd({"a": 2})\nfour\nso 4\nthanks\n'
    assert rollout.turns is not None
    turn_of = dict(zip(words, rollout.turns, strict=True))
    assert [turn_of[word] for word in ("sys", "before", "call", "four", "so", "thanks")] == [0, 1, 2, 3, 4, 5]


def test_a_message_of_tool_calls_alone_may_have_no_content(tmp_path: Path) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [{"name": "now"}]}

    assert one(tmp_path, response=[message]).text == "now()\n"


def test_all_that_an_assistant_says_is_a_line_of_its_own_in_the_order_it_was_said(tmp_path: Path) -> None:
    call = {"name": "add", "arguments": {"a": 2}}
    message = {
        "role": "assistant",
        "refusal": "no",
        "function_call": {"name": "old"},
        "tool_calls": [call, call],
        "reasoning_content": "hm",
        "content": ["so", {"type": "image"}, {"type": "refusal", "refusal": " not"}],
    }

    rollout = one(tmp_path, response=[message])

    assert rollout.text == 'hm\nso not\nno\nadd({"a": 2})\nadd({"a": 2})\nold()\n'
    assert rollout.action_mask == [True] * (len(rollout.tokens) - 1) + [False]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param({"schema": 2}, "schema 2 is unknown; this version reads schema 1", id="unknown schema"),
        pytest.param({"group": None}, "the field 'group' is missing", id="no group"),
        pytest.param({"group": [1]}, "group is [1]; expected a string or a whole number", id="group"),
        pytest.param({"outcome": NAN}, "outcome is nan", id="NaN outcome"),
        pytest.param({"outcome": math.inf}, "outcome is inf", id="infinite outcome"),
        pytest.param({"outcome": 10**400}, "expected a finite number", id="outcome beyond floats"),
        pytest.param({"outcome": "1"}, "outcome is '1'; expected a finite number", id="outcome as text"),
        pytest.param(
            {"response": 5},
            "response must be text, a list of token ids or a list of chat messages; got int",
            id="response",
        ),
        pytest.param({"response": [1, 1.5]}, "response[1] is 1.5", id="ids that are none"),
        pytest.param({"response": [None]}, "response[0] is None", id="no ids"),
        pytest.param({"response": [1, {}]}, "response[1] is {}", id="ids and messages"),
        pytest.param({"response": [True]}, "response[0] is True", id="an id that is a truth value"),
        pytest.param({"prompt": [10**30]}, "prompt[0] is 10000000", id="an id beyond int64"),
        pytest.param(
            {"response": [{"role": "user"}, {"content": "x"}]},
            "response[1]: a chat message has no role; it has content",
            id="no role",
        ),
        pytest.param(
            {"response": [{"role": "user", "content": [5]}]}, "response[0]: a part of a chat message's", id="part"
        ),
        pytest.param({"response": [{"role": "user", "content": 5}]}, "must have text as its content", id="content"),
        pytest.param(
            {"response": [{"role": "assistant", "tool_calls": ["f"]}]}, "a list of objects as tool_calls", id="calls"
        ),
        pytest.param(
            {"response": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]}, "no function name", id="call of nothing"
        ),
        pytest.param({"action_mask": [True]}, "action_mask has 1 entries for 2 tokens", id="mask too short"),
        pytest.param({"action_mask": [True, "no"]}, "action_mask[1] is 'no'; expected true or false", id="mask"),
        pytest.param({"token_logprobs": [-1.0]}, "token_logprobs has 1 entries for 2 tokens", id="logprobs too short"),
        pytest.param({"token_logprobs": [-1.0, None]}, "token_logprobs[1] is None", id="no logprob where sampled"),
        pytest.param({"token_logprobs": [0.5, -1.0]}, "token_logprobs[0] is 0.5; expected a number of", id="positive"),
        pytest.param({"turns": [0, 1, 2]}, "turns has 3 entries for 2 tokens", id="turns too long"),
        pytest.param({"turns": 1}, "turns has int for 2 tokens", id="turns no list"),
        pytest.param({"turns": [0, "x"]}, "turns[1] is 'x'; expected a whole number", id="turns"),
        pytest.param(
            {"text": "b c", "offsets": [[0, 1]]}, "offsets has 1 entries for 2 tokens", id="offsets too short"
        ),
        pytest.param({"text": "b c", "offsets": [[0, 1], [1]]}, "offsets[1] is [1]; expected", id="offsets"),
        pytest.param({"text": "b c", "offsets": [[-1, 1], [1, 2]]}, "offsets[0] is [-1, 1]; expected", id="before"),
        pytest.param({"text": "b c", "offsets": [[2, 1], [1, 2]]}, "offsets[0] is [2, 1]; expected", id="backwards"),
        pytest.param({"text": "b c", "offsets": [[0, 1], [1, 4]]}, "within the 3 characters", id="offsets beyond"),
        pytest.param({"text": 5, "offsets": [[0, 1], [1, 2]]}, "text is int; expected a string", id="text"),
        pytest.param({"ended": "false"}, "ended is 'false'; expected true or false", id="ended"),
        pytest.param({"step_values": [NAN]}, "step_values[0] is nan; expected a finite number", id="NaN value"),
        pytest.param({"step_rewards": [1, "x"]}, "step_rewards[1] is 'x'; expected a finite number", id="reward"),
        pytest.param(
            {"step_rewards": [1, None]}, "step_rewards[1] is None; expected a finite number", id="null reward"
        ),
        pytest.param({"step_rewards": [math.inf]}, "step_rewards[0] is inf; expected a finite", id="infinite reward"),
        pytest.param(
            {"step_rewards": 1},
            "step_rewards must be a list of numbers, one a step or one a sampled token; got int",
            id="rewards no list",
        ),
        pytest.param({"end_value": NAN}, "end_value is nan; expected a finite number", id="NaN end value"),
        pytest.param({"branched_at": 1.0}, "branched_at is 1.0; expected a whole number from 0", id="half a branch"),
        pytest.param({"branched_at": 99}, "branched_at is 99; expected a whole number from 0", id="a branch too long"),
        pytest.param({"token_logprobs": [NAN, -1.0]}, "token_logprobs[0] is nan; expected a number", id="NaN logprob"),
        pytest.param({"turns": [0, NAN]}, "turns[1] is nan; expected a whole number", id="NaN turn"),
        pytest.param({"turns": [0, -(2**63) - 1]}, "turns[1] is -9223372036854775809;", id="a turn below int64"),
        pytest.param({"turns": [2**63, 0]}, "turns[0] is 9223372036854775808; expected", id="a turn beyond int64"),
        pytest.param({"ended": NAN}, "ended is nan; expected true or false", id="NaN flag"),
        pytest.param({"action_mask": [1, 2]}, "action_mask[1] is 2; expected true or false", id="a mask of 2"),
    ],
)
def test_what_cannot_be_right_is_refused_with_file_and_line(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        loaded(tmp_path, LEAST, LEAST | fields)

    assert str(caught.value).startswith(f"{tmp_path / 'rollouts.jsonl'}, line 2: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["outcome", "group"])
def test_a_missing_field_is_named_with_those_that_came(tmp_path: Path, name: str) -> None:
    fields = {key: value for key, value in LEAST.items() if key != name}

    with pytest.raises(InputError, match=rf"line 1: the field '{name}' is missing; the row has {', '.join(fields)}$"):
        loaded(tmp_path, fields)


@pytest.mark.parametrize(
    ("name", "scores"),
    [pytest.param("step_rewards", [1, 2, 3], id="rewards"), pytest.param("step_values", [1, 2, 3], id="values")],
)
def test_step_scores_that_fit_neither_steps_nor_tokens_are_refused_with_both_counts(
    tmp_path: Path, name: str, scores: list[float]
) -> None:
    rows = LEAST | {"response": "a b\nc", "step_values": [0.5, 0.25]}
    batch = loaded(tmp_path, rows, rows | {name: scores})

    with pytest.raises(InputError) as caught:
        apportion(batch, vineppo())

    said = str(caught.value)
    assert "rollout 1: 3 step" in said
    assert "neither its 2 steps nor its 4 sampled tokens" in said


@pytest.mark.parametrize(
    "fields",
    [pytest.param({"text": "zzz"}, id="text"), pytest.param({"offsets": [[0, 0], [0, 0]]}, id="offsets")],
)
def test_text_and_offsets_count_only_together(tmp_path: Path, fields: dict[str, Any]) -> None:
    assert one(tmp_path, **fields) == one(tmp_path)


def test_a_log_probability_may_be_above_0_by_rounding(tmp_path: Path) -> None:
    assert one(tmp_path, token_logprobs=[1e-4, -1.0]).logprobs is not None


def test_nothing_that_is_not_sampled_is_looked_at(tmp_path: Path) -> None:
    rollout = one(tmp_path, action_mask=[False, True], token_logprobs=[NAN, -1.0])

    assert rollout.logprobs is not None
    assert math.isnan(rollout.logprobs[0])
    assert rollout.logprobs[1] == -1.0


def test_log_probabilities_that_some_rows_lack_are_dropped_saying_so(tmp_path: Path) -> None:
    given = LEAST | {"token_logprobs": [-1.0, -1.0]}
    with pytest.warns(UserWarning, match="1 of 3 rollouts have no log-probabilities"):
        batch = loaded(tmp_path, LEAST, given, given)

    assert batch.logprobs is None


def test_rows_with_their_ledger_can_be_read_as_rollouts_again(tmp_path: Path) -> None:
    batch = loaded(
        tmp_path,
        LEAST | {"response": "a\nb", "step_values": [0.5, 0.25], "outcome": 1},
        LEAST | {"response": "a\nc", "step_values": [0.5, 0.75], "outcome": None},
    )
    ledger = apportion(batch, vineppo())
    written = ledger.rows()

    same(loaded(tmp_path, *written), batch)
    assert written[0]["ledger"]["credit"] == [-0.25, 0.75]
    assert written[0]["ledger"]["advantage"] == [-0.25, -0.25, 0.75]
    assert written[1]["ledger"]["credit"] is None


def test_tool_output_has_advantage_0(tmp_path: Path) -> None:
    chat = [{"role": "assistant", "content": "a"}, {"role": "tool", "content": "t"}]
    batch = loaded(tmp_path, LEAST | {"response": chat, "outcome": 1}, LEAST | {"response": chat, "outcome": 0})

    assert apportion(batch, dr_grpo()).advantage.tolist() == [[0.5, 0, 0, 0], [-0.5, 0, 0, 0]]


def test_one_long_answer_does_not_pad_all_others_to_its_length(tmp_path: Path) -> None:
    rows = [LEAST | {"prompt": [], "response": [7] * count} for count in (3, 3, 40, 3, 3, 3)]

    batch = loaded(tmp_path, *rows)

    assert batch.tokens.shape == (3, 40)
    assert [len(rollout.tokens) for rollout in batch.rows()] == [3, 3, 40, 3, 3, 3]
