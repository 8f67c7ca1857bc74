"""A recipe of apportion inside verl's own functions, on a CPU: advantages, policy loss, and what the linter says."""

import numpy
import torch
from verl import DataProto  # importing verl registers our recipes: installing apportion is enough
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.workers.config import ActorConfig

from apportion.lint import lint

mask = torch.tensor([[1, 1, 0, 1], [1, 0, 1, 0]])  # of two answers to one prompt: sampled = 1, tool and padding = 0
rewards = torch.tensor([[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
batch = {"token_level_rewards": rewards, "response_mask": mask}
data = DataProto.from_dict(batch, non_tensors={"uid": numpy.array(["3+4?", "3+4?"], dtype=object)})
data = compute_advantage(data, "apportion_rloo", config=AlgoConfig(adv_estimator="apportion_rloo"))
advantages = data.batch["advantages"]
actor = ActorConfig(strategy="fsdp", rollout_n=2, ppo_micro_batch_size_per_gpu=2)
same = torch.full((2, 4), -0.5)
loss, _ = compute_policy_loss_vanilla(same, same, advantages, mask, "token-mean", actor)
print(advantages.tolist(), round(float(loss), 4))
columns = {"rewards": rewards, "action_mask": mask, "advantages": advantages, "groups": [0, 0], "recipe": "rloo"}
print(sorted({found.verdict for found in lint(columns)}))
