#!/usr/bin/env bash
# Line credit inside verl on one GPU: a small real model, vLLM rollouts, GSM8K; then the linter's word on what was captured.
#
#   pip install 'verl[vllm,verl-core]==0.9.1' 'apportion[verl]'
#   examples/verl_gpu_run.sh                      line credit
#   ARM=grpo examples/verl_gpu_run.sh             one number an answer, same seed
#
# MODEL (a folder or a name), STEPS and OUT (a folder) may be set. Nothing here ran on a GPU yet: a test holds the
# options against verl's configuration, and what the captures hold against the linter.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
MODEL=${MODEL:-Qwen/Qwen2.5-0.5B-Instruct} STEPS=${STEPS:-20} OUT=${OUT:-verl-run} ARM=${ARM:-lines}
declare -A ESTIMATOR=([lines]=apportion_grpo_process [grpo]=apportion_grpo)
mkdir -p "$OUT"

python - "$OUT" <<'EOF'
import sys
from datasets import load_dataset

ask = "\nThink line by line, write each sum as a + b = c, and end with the number alone."
for split in ("train", "test"):
    rows = load_dataset("openai/gsm8k", "main", split=split).select(range(1024 if split == "train" else 256))
    rows.map(
        lambda row: {
            "data_source": "gsm8k",
            "prompt": [{"role": "user", "content": row["question"] + ask}],
            "reward_model": {"style": "rule", "ground_truth": row["answer"].split("####")[1].strip()},
        },
        remove_columns=rows.column_names,
    ).to_parquet(f"{sys.argv[1]}/{split}.parquet")
EOF

python -m verl.trainer.main_ppo \
  trainer.v1.trainer_mode=apportion \
  algorithm.adv_estimator="${ESTIMATOR[$ARM]}" \
  reward.reward_manager.name=apportion \
  reward.custom_reward_function.path="$here/verl_reward.py" \
  +apportion.capture_every=5 \
  +apportion.capture_dir="$OUT/captured-$ARM" \
  algorithm.rollout_correction.rollout_rs=token_k1 \
  algorithm.rollout_correction.rollout_rs_threshold="'0.5_2.0'" \
  data.train_files="$OUT/train.parquet" \
  data.val_files="$OUT/test.parquet" \
  data.train_batch_size=64 \
  data.max_prompt_length=512 \
  data.max_response_length=512 \
  actor_rollout_ref.model.path="$MODEL" \
  actor_rollout_ref.actor.optim.lr=1e-6 \
  actor_rollout_ref.actor.ppo_mini_batch_size=64 \
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 \
  actor_rollout_ref.rollout.name=vllm \
  actor_rollout_ref.rollout.n=8 \
  actor_rollout_ref.rollout.calculate_log_probs=True \
  actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
  actor_rollout_ref.rollout.gpu_memory_utilization=0.4 \
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8 \
  trainer.n_gpus_per_node=1 \
  trainer.nnodes=1 \
  trainer.logger=console \
  trainer.save_freq=-1 \
  trainer.total_training_steps="$STEPS" | tee "$OUT/console-$ARM.log"

for batch in "$OUT/captured-$ARM"/*.npz; do apportion lint "$batch"; done
apportion view "$(ls -t "$OUT/captured-$ARM"/*.jsonl | head -n 1)" --out "$OUT/page-$ARM.html"
