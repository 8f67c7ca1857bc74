import json
import shutil
from importlib.resources import files

import pytest
import torch

from apportion.errors import InputError
from apportion.policy.causal import CausalPolicy
from apportion.policy.sampling import Sampling


@pytest.fixture(scope="module")
def policy():
    return CausalPolicy.load("embedded")


@torch.no_grad()
def test_logprobs_and_entropy_are_those_of_the_softmax_at_temperature(policy):
    tokens = torch.tensor([[5, 9, 14, 30, 22], [5, 9, 14, 0, 0]])
    valid = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
    action = torch.tensor([[0, 0, 1, 1, 0], [0, 1, 1, 0, 0]]).bool()
    logprobs, entropy = policy.logprobs(tokens, valid, action, temperature=0.5)
    full = (policy.model(input_ids=tokens[:1]).logits[0] / 0.5).softmax(-1)
    assert float(logprobs[0, 2]) == pytest.approx(float(full[1, 14].log()), abs=1e-4)
    assert float(entropy[0, 3]) == pytest.approx(float(-(full[2] * full[2].log()).sum()), abs=1e-4)
    assert not logprobs[~action].any()
    assert not entropy[~action].any()


@torch.no_grad()
def test_padding_changes_no_logprob(policy):
    tokens = torch.tensor([[5, 9, 14, 30]])
    action = torch.tensor([[0, 1, 1, 1]]).bool()
    alone, _ = policy.logprobs(tokens, torch.ones_like(action), action, temperature=1.0)
    wider = torch.nn.functional.pad(tokens, (0, 3), value=33)
    mask = torch.nn.functional.pad(action, (0, 3))
    padded, _ = policy.logprobs(wider, wider != 33, mask, temperature=1.0)
    assert torch.allclose(padded[:, :4], alone, atol=1e-5)


def test_a_saved_policy_is_loaded_again_to_the_same_numbers(policy, tmp_path):
    policy.save(tmp_path)
    again = CausalPolicy.load(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(policy.model.parameters(), again.model.parameters(), strict=True))
    assert again.encode("?") == policy.encode("?")


def test_a_frozen_copy_does_not_follow(policy):
    with policy.reference()() as twin:
        pass
    first, copied = next(policy.model.parameters()), next(twin.model.parameters())
    assert first.data_ptr() != copied.data_ptr()
    assert not copied.requires_grad


def test_a_model_that_is_not_there_is_refused_in_one_line(tmp_path):
    with pytest.raises(InputError, match="no such folder or file"):
        CausalPolicy.load(tmp_path / "nothing")


@pytest.mark.parametrize(
    "name", [pytest.param("notes.txt", id="text-file"), pytest.param(".", id="folder-without-model")]
)
def test_what_is_no_model_is_refused_in_one_line(tmp_path, name):
    (tmp_path / "notes.txt").write_text("no model")
    with pytest.raises(InputError, match="could not be loaded"):
        CausalPolicy.load(tmp_path / name)


def test_a_tokenizer_without_an_end_token_is_refused(tmp_path):
    shutil.copytree(str(files("apportion") / "embedded"), tmp_path / "model")
    for name in ("tokenizer_config.json", "generation_config.json", "config.json"):
        path = tmp_path / "model" / name
        content = json.loads(path.read_text())
        path.write_text(json.dumps({k: v for k, v in content.items() if not k.startswith("eos")}))
    with pytest.raises(InputError, match="no end-of-text token"):
        CausalPolicy.load(tmp_path / "model")


def test_a_prompt_that_does_not_fit_the_context_is_refused(policy):
    with pytest.raises(InputError, match="do not fit the model's context"):
        policy.sample([[5] * policy.context], Sampling(1), torch.Generator())


def test_an_empty_prompt_is_refused(policy):
    with pytest.raises(InputError, match="has no tokens"):
        policy.encode("")
