"""The same figures are read from whatever a trainer leaves, and what is no run is refused in one line."""

from __future__ import annotations

import json

import pytest

from apportion.doctor import diagnose, examine
from apportion.doctor.readers import read
from apportion.errors import InputError

STEPS = range(1, 13)
KL, LENGTH = [0.01 * n for n in STEPS], [100.0 + n for n in STEPS]


def text_of_rows(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def ours(tmp_path):
    rows = [
        {"step": n, "kl": kl, "length_p50": long, "events": []} for n, kl, long in zip(STEPS, KL, LENGTH, strict=True)
    ]
    (tmp_path / "metrics.jsonl").write_text(text_of_rows(rows) + '{"step": 13, "kl":')  # killed while writing
    (tmp_path / "timings.jsonl").write_text(text_of_rows([{"step": n, "seconds": 2.0} for n in STEPS]))
    (tmp_path / "config.toml").write_text("kl_beta = 0.5\n")
    return tmp_path


def trl_state(tmp_path):
    rows = [
        {"step": n, "kl": kl, "completions/mean_length": long, "epoch": 0.1}
        for n, kl, long in zip(STEPS, KL, LENGTH, strict=True)
    ]
    rows += [{"step": 12, "train_runtime": 9.0, "train_loss": 0.1}]
    for number, kept in ((4, rows[:4]), (12, rows)):
        folder = tmp_path / f"checkpoint-{number}"
        folder.mkdir()
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": number, "log_history": kept}))
    return tmp_path


def tensorboard(tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    for steps in (range(1, 9), range(9, 13)):  # taken up again
        writer = SummaryWriter(tmp_path / "logs")
        for n in steps:
            writer.add_scalar("train/kl", KL[n - 1], n)
            writer.add_scalar("train/completions/mean_length", LENGTH[n - 1], n)
        writer.close()
    return tmp_path


def wandb_csv(tmp_path):
    lines = ["Step,brave-sea-1 - train/kl,brave-sea-1 - train/kl__MIN,brave-sea-1 - train/completions/mean_length"]
    lines += [f"{n},{kl},{kl},{long}" for n, kl, long in zip(STEPS, KL, LENGTH, strict=True)]
    (tmp_path / "export.csv").write_text("\n".join(lines))
    return tmp_path / "export.csv"


def wandb_json(tmp_path):
    rows = [
        {"_step": n, "_runtime": 1.0, "train/kl": kl, "train/completions/mean_length": long, "train/loss": "NaN"}
        for n, kl, long in zip(STEPS, KL, LENGTH, strict=True)
    ]
    (tmp_path / "history.json").write_text(json.dumps(rows))
    return tmp_path / "history.json"


def verl_log(tmp_path):
    lines = ["INFO starting"]
    lines += [
        f"\x1b[36m(TaskRunner pid=7)\x1b[0m step:{n} - actor/kl_loss:{kl} - "
        f"response_length/mean:np.float64({long}) - x:oops"
        for n, kl, long in zip(STEPS, KL, LENGTH, strict=True)
    ]
    (tmp_path / "console.log").write_text("\n".join(lines))
    return tmp_path / "console.log"


READERS = [ours, trl_state, tensorboard, wandb_csv, wandb_json, verl_log]


@pytest.mark.parametrize("write", READERS, ids=[write.__name__ for write in READERS])
def test_the_figures_come_out_as_they_went_in(write, tmp_path):
    history = read(write(tmp_path))
    assert history.series("kl").steps == tuple(STEPS)
    assert history.series("kl").values == pytest.approx(KL)
    assert history.series("length").values == pytest.approx(LENGTH)
    assert "kl" in history.series("kl").called


def test_our_settings_and_timings_come_along(tmp_path):
    history = read(ours(tmp_path))
    assert history.settings == {"kl_beta": 0.5}
    assert history.columns["seconds"] == (2.0,) * 12
    assert history.leashed is True


def test_a_figure_that_is_written_as_nan_is_found_as_no_number(tmp_path):
    assert diagnose(wandb_json(tmp_path))[0].code == "D01"


def ledger_row(outcome, length, mask, group=0):
    return {
        "group": group,
        "outcome": outcome,
        "action_mask": mask,
        "turns": [0, *([1] * (length - 2)), 2, 2],  # of one token of prompt, and two turns without anything between
        "ledger": {"reward": [0.0, outcome], "value": [0.5, 0.25], "parts": {"process": [0.0, 0.5]}},
    }


def test_saved_ledgers_tell_what_metrics_do_not(tmp_path):
    folder = ours(tmp_path) / "ledgers"
    folder.mkdir()
    rows = [ledger_row(1.0, 6, [True] * 6), ledger_row(0.0, 4, [True] * 4), {"outcome": None, "group": 0}]
    for step in (1, 4, 7, 10):
        (folder / f"step-{step:06d}.jsonl").write_text(text_of_rows(rows))
    history = read(tmp_path)
    last = {name: history.series(name).values[-1] for name in ("value_spread", "process_spread", "reward_highest")}
    assert last == {"value_spread": 0.25, "process_spread": 0.5, "reward_highest": 1.0}
    assert history.series("length_reward_correlation").values == pytest.approx([1.0] * 4)
    assert history.series("reward_spread_in_group").values[0] == 0.5
    assert history.series("turns_per_rollout").values[0] == 2.0
    assert "D02" in [found.code for found in examine(history).findings]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        pytest.param("gone", None, ["there is no such"], id="nothing"),
        pytest.param("x.json", "{", ["x.json", "not JSON"], id="half-json"),
        pytest.param("x.json", "[1, 2]", ["expected an object with log_history"], id="no-rows"),
        pytest.param("x.json", '{"log_history": 3}', ["log_history is int"], id="no-list"),
        pytest.param("x.json", '{"log_history": [3]}', ["row 0", "int"], id="row-that-is-none"),
        pytest.param("x.json", '{"log_history": []}', ["nothing to look at"], id="empty"),
        pytest.param("x.json", '{"a": [1, 2], "b": [1]}', ["[1, 2] entries"], id="uneven-columns"),
        pytest.param("x.txt", "all is well\n", ["step:1 - actor/entropy"], id="prose"),
        pytest.param("x.csv", "Step,a - kl,b - kl\n1,2,3\n", ["2 runs (a, b)"], id="two-runs"),
        pytest.param("metrics.jsonl", '{"step": 0}\n[]\n{"step": 1}\n', ["line 2", "expected an object"], id="line"),
        pytest.param("metrics.jsonl", '{"step": 0\n{"step": 1}\n', ["line 1", "not JSON"], id="broken-line"),
    ],
)
def test_what_is_no_run_is_refused_and_named(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError) as refused:
        read(tmp_path / name)
    assert all(word in str(refused.value) for word in words), refused.value


def test_an_empty_folder_is_refused_with_what_would_be_read(tmp_path):
    with pytest.raises(InputError, match=r"holds no run that we can read.*trainer_state\.json"):
        read(tmp_path)
