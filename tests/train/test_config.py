import re
from pathlib import Path

import pytest

from apportion.errors import InputError
from apportion.train.config import EMBEDDED, TrainConfig, read_toml, resolve, to_toml
from apportion.train.effects import ONLY
from apportion.train.start import settings_of


def test_the_embedded_model_gets_its_own_defaults_and_the_user_stands_above_them():
    assert resolve({}).learning_rate == EMBEDDED["learning_rate"]
    assert resolve({"learning_rate": 0.5}).learning_rate == 0.5
    assert resolve({"model": "some/folder"}).learning_rate == TrainConfig().learning_rate


def test_what_is_written_as_toml_is_read_back_as_the_same_config(tmp_path):
    config = resolve({"recipe": "rloo", "seed": 7, "data": 'a "quoted" name.jsonl'})
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert resolve(read_toml(tmp_path / "config.toml")) == config


def test_every_setting_says_what_it_is():
    assert all(field.description for field in TrainConfig.model_fields.values())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({"recipee": "grpo"}, ["recipee", "did you mean 'recipe'"], id="unknown-key"),
        pytest.param({"recipe": "gpro"}, ["gpro", "did you mean 'grpo'"], id="unknown-recipe"),
        pytest.param({"recipe": "ppo", "values": "exact"}, ["bootstraps from a critic"], id="no-critic"),
        pytest.param({"kl_target": 0.1}, ["kl_beta must be above 0"], id="target-without-weight"),
        pytest.param({"gradient_checkpointing": True}, ["layout packed or padded"], id="prompts-once-and-lean"),
        pytest.param({"sharded": True}, ["layout packed or padded"], id="prompts-once-and-shards"),
        pytest.param(
            {"kl_beta": 0.1, "kl_target": 0.1, "kl_horizon": 100.0}, ["at least the 256 answers"], id="short-horizon"
        ),
        pytest.param({"mc_samples": 3}, ["mc_samples has no effect", "values by monte_carlo"], id="values-of-grpo"),
        pytest.param({"values": "exact"}, ["values has no effect", "vineppo"], id="source-of-no-values"),
        pytest.param({"recipe": "vineppo", "lam": 0.9}, ["lam has no effect", "the recipe ppo"], id="lam-of-vineppo"),
        pytest.param({"clip_high": 0.3}, ["clip_high has no effect", "several updates"], id="clip-of-one-update"),
        pytest.param({"kl_estimator": "k2"}, ["kl_estimator has no effect", "kl_beta above 0"], id="kl-of-no-weight"),
        pytest.param({"step_credit_from": 0.5}, ["step_credit_from has no effect", "credit steps"], id="no-steps"),
        pytest.param(
            {"recipe": "vineppo", "step_credit_from": 0.5, "outcome_recipe": "ppo"}, ["credits steps"], id="outcome"
        ),
        pytest.param(
            {"recipe": "vineppo", "step_credit_from": 0.5, "step_credit_full": 0.4}, ["more than"], id="ramp-down"
        ),
        pytest.param({"replay_share": 0.3}, ["replay_share is 0.3", "less than or equal to 0.2"], id="much-replay"),
        pytest.param({"normalise": "whitten"}, ["did you mean 'whiten'"], id="unknown-normalisation"),
        pytest.param({"kl_in": "reward"}, ["kl_in has no effect", "kl_beta above 0"], id="kl-nowhere"),
        pytest.param({"reduction": "tokenmean"}, ["did you mean 'token_mean'"], id="unknown-reduction"),
        pytest.param({"temperature": 0}, ["temperature is 0", "greater than 0"], id="zero-temperature"),
        pytest.param({"steps": "many"}, ["steps is 'many'"], id="wrong-type"),
        pytest.param({"task": "data"}, ["names the file"], id="data-without-file"),
        pytest.param({"task": "chain", "data": "x.jsonl"}, ["names the file"], id="file-without-data"),
        pytest.param({"group": 4, "first_answers": 5}, ["first_answers is 5", "group of 4"], id="more-first-than-all"),
        pytest.param({"recipe": "tree", "first_answers": 2}, ["tree_roots"], id="first-answers-of-trees"),
        pytest.param(
            {"recipe": "vineppo", "values": "exact", "task": "gym:chain_sum"},
            ["for the task chain only"],
            id="exact-elsewhere",
        ),
        pytest.param({"updates": 1000}, ["1000 updates"], id="more-updates-than-rollouts"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(settings, words):
    with pytest.raises(InputError) as refusal:
        resolve(settings)
    assert all(word in str(refusal.value) for word in words), refusal.value


def test_the_settings_that_the_page_on_step_credit_shows_are_settings():
    page = (Path(__file__).parents[2] / "docs" / "step-credit.md").read_text(encoding="utf-8")
    shown = re.findall(r"`(?:--set )?(\w+=[^`\s]+)`", page)
    assert len(shown) >= 6
    for setting in shown:
        key = setting.partition("=")[0]
        recipe = "tree" if key.startswith("tree") else "vineppo"
        resolve(settings_of({"recipe": recipe}, [setting], None))


def test_a_file_of_problems_is_not_asked_for_as_many_held_out_ones_as_the_embedded_task():
    assert resolve({}).held_out == 512
    assert resolve({"data": "x.jsonl"}).held_out is None


def test_what_has_no_effect_is_written_as_a_comment_that_says_where_it_has_one():
    lines = to_toml(resolve({"recipe": "rloo"})).splitlines()
    assert next(line for line in lines if "mc_samples =" in line).startswith("# mc_samples = 4  # ")
    assert next(line for line in lines if "mc_samples =" in line).endswith(
        "(for values by monte_carlo, without mc_error)"
    )
    assert not next(line for line in lines if "prompts =" in line).startswith("#")


def test_every_setting_that_only_some_runs_have_is_a_setting():
    assert ONLY.keys() <= TrainConfig.model_fields.keys()


def test_ppo_takes_its_values_from_a_critic():
    assert resolve({"recipe": "ppo"}).values == "critic"


@pytest.mark.parametrize("content", [pytest.param("recipe = grpo", id="bare-word"), pytest.param("[", id="cut-short")])
def test_a_file_that_is_no_toml_is_refused_by_name(tmp_path, content):
    (tmp_path / "my.toml").write_text(content)
    with pytest.raises(InputError, match=r"my\.toml"):
        read_toml(tmp_path / "my.toml")
