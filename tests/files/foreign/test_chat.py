"""Chat transcripts: the assistant's words and calls were sampled, a message is a turn, a task is a group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from apportion.errors import InputError
from apportion.files import load
from apportion.files.storage import write_rows
from apportion.rollouts import Rollout, Rollouts

FIXTURES = Path(__file__).parents[1] / "fixtures"
ASK = {"role": "user", "content": "2 + 3?"}
SAY = {"role": "assistant", "content": "5"}


def loaded(tmp_path: Path, *rows: dict[str, Any], format: str | None = None) -> Rollouts:
    path = tmp_path / "chats.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return load(path, format=format)


def sampled(row: Rollout) -> list[str]:
    """What the policy wrote, turn by turn."""
    assert row.text is not None
    turns: dict[int, str] = {}
    for (start, end), a, turn in zip(row.offsets or [], row.action_mask, row.turns or [], strict=True):
        if a:
            turns[turn] = turns.get(turn, "") + row.text[start:end]
    return list(turns.values())


def test_results_of_tau_bench_are_read() -> None:
    right, wrong, other = load(FIXTURES / "tau-bench.json").rows()

    assert [(row.id, row.group, row.outcome) for row in (right, wrong, other)] == [
        ("0/0", 0, 1.0),
        ("0/1", 0, 0.0),
        ("1/0", 1, 0.0),
    ]
    assert sampled(right) == [
        'get_flight({"user": "mia"})',
        "H1 on Monday: yes?",
        'Moving it.\nmove_flight({"flight": "H1", "day": "Monday"})',
        "Moved.",
    ]
    assert sampled(wrong) == ['move_flight({"flight": "H2", "day": "Monday"})', "Sorry."]
    assert right.turns is not None
    assert sorted(set(right.turns)) == list(range(10))


def test_nothing_of_a_transcript_is_lost() -> None:
    for (_, came), row in zip(
        enumerate(json.loads((FIXTURES / "tau-bench.json").read_text())),
        load(FIXTURES / "tau-bench.json").rows(),
        strict=True,
    ):
        assert row.text is not None
        assert "".join(row.text[start:end] for start, end in row.offsets or []) == row.text
        assert all((message["content"] or "") in row.text for message in came["traj"])


@pytest.mark.parametrize("name", ["messages", "traj"])
def test_all_that_an_assistant_says_in_one_list_was_sampled(tmp_path: Path, name: str) -> None:
    (row,) = loaded(tmp_path, {name: [SAY, ASK, SAY], "reward": 1}).rows()

    assert sampled(row) == ["5", "5"]


def test_of_prompt_and_completion_the_prompt_was_given_whoever_speaks_in_it(tmp_path: Path) -> None:
    (row,) = loaded(tmp_path, {"prompt": [ASK, SAY, ASK], "completion": [SAY], "reward": 1}).rows()

    assert row.text == "2 + 3?\n5\n2 + 3?\n5\n"
    assert sampled(row) == ["5"]
    assert row.turns == [0] * 5 + [1] * 2 + [2] * 5 + [3] * 2


@pytest.mark.parametrize("name", ["reward", "score", "outcome"])
def test_a_score_has_one_of_three_names_and_null_is_not_0(tmp_path: Path, name: str) -> None:
    batch = loaded(tmp_path, *({"messages": [SAY], name: score} for score in (0.5, None, 0)))

    assert [row.outcome for row in batch.rows()] == [0.5, None, 0.0]


def test_a_score_of_null_in_parquet_is_not_scored(tmp_path: Path) -> None:
    path = tmp_path / "chats.parquet"
    write_rows(path, [{"messages": [SAY], "reward": 1.0}, {"messages": [SAY], "reward": None}])

    assert [row.outcome for row in load(path).rows()] == [1.0, None]


@pytest.mark.parametrize("name", ["group", "task_id", "example_id", "prompt_id"])
def test_a_group_has_one_of_four_names(tmp_path: Path, name: str) -> None:
    batch = loaded(tmp_path, *({"messages": [SAY], "reward": 1, name: group} for group in (0, "a", 0)))

    assert batch.group_names == (0, "a")
    assert batch.groups.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("transcripts", "groups"),
    [
        pytest.param(
            [{"messages": [ASK, SAY]}, {"messages": [ASK, SAY, ASK]}, {"messages": [ASK, ASK, SAY]}],
            [0, 0, 1],
            id="one list",
        ),
        pytest.param(
            [
                {"prompt": [SAY, ASK], "completion": [SAY]},
                {"prompt": [SAY, ASK], "completion": [ASK]},
                {"prompt": [SAY], "completion": [SAY]},
            ],
            [0, 0, 1],
            id="prompt and completion",
        ),
        pytest.param([{"messages": [ASK]}, {"messages": [ASK, SAY]}, {"messages": []}], [0, 0, 1], id="no assistant"),
    ],
)
def test_without_a_name_rows_that_begin_alike_are_a_group(
    tmp_path: Path, transcripts: list[dict[str, Any]], groups: list[int]
) -> None:
    batch = loaded(tmp_path, *(row | {"reward": 1} for row in transcripts))

    assert batch.groups.tolist() == groups
    assert batch.group_names == ("prompt 0", "prompt 1")


@pytest.mark.parametrize(
    ("fields", "id"),
    [
        pytest.param({"id": 7, "task_id": 1, "trial": 2}, "7", id="its own"),
        pytest.param({"task_id": 1, "trial": 0}, "1/0", id="task and trial"),
        pytest.param({"task_id": 1}, "0", id="task alone"),
        pytest.param({}, "0", id="none"),
    ],
)
def test_a_row_is_named_by_its_id_or_by_task_and_trial(tmp_path: Path, fields: dict[str, Any], id: str) -> None:
    assert loaded(tmp_path, {"messages": [SAY], "reward": 1} | fields).ids == (id,)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        pytest.param({"messages": "hi", "reward": 1}, "messages must be a list of chat messages; got text", id="text"),
        pytest.param(
            {"messages": [1], "reward": 1}, "messages must be a list of chat messages; got a list of", id="ids"
        ),
        pytest.param(
            {"messages": [ASK, "hi"], "reward": 1},
            "messages must be a list of chat messages; messages[1] is 'hi'",
            id="a message that is none",
        ),
        pytest.param(
            {"traj": [ASK, {"x": 1}], "reward": 1}, "traj[1]: a chat message has no role; it has x", id="role"
        ),
        pytest.param(
            {"traj": [{"role": "assistant", "tool_calls": [{"id": "1"}]}], "reward": 1},
            "traj[0]: a tool call has no function name",
            id="call",
        ),
        pytest.param({"messages": [SAY]}, "no score; expected one of the fields reward, score, outcome", id="no score"),
        pytest.param({"messages": [SAY], "reward": "good"}, "reward is 'good'; expected a finite number", id="score"),
        pytest.param({"messages": [SAY], "score": float("nan")}, "score is nan; expected a finite", id="NaN"),
        pytest.param({"messages": [SAY], "score": 1, "task_id": [1]}, "task_id is [1]; expected a string", id="group"),
        pytest.param({"reward": 1}, "no messages; expected the field messages, or traj, or prompt and", id="nothing"),
        pytest.param({"prompt": [ASK], "reward": 1}, "no messages; expected the field messages", id="no completion"),
    ],
)
def test_what_cannot_be_right_is_refused(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        loaded(tmp_path, {"messages": [SAY], "reward": 1}, row)

    assert f"chats.json, entry 2: {words}" in str(caught.value)
    assert "\n" not in str(caught.value)
