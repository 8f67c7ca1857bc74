"""verl's trainer v1 with the whole batch in the estimator's reach: `trainer.v1.trainer_mode=apportion`.

All of verl's own steps stay verl's: KL penalty, rollout correction, what is written back. Only meanwhile the batch is
held out to the estimator (`handed`), with token ids, the critic's values, step rewards and the mask as it was sampled.
`apportion_colocate_async` and `apportion_separate_async` stand for verl's modes of these names.
"""

from __future__ import annotations

from typing import Any

from apportion.adapters.verl.capture import Capture
from apportion.adapters.verl.handed import FIELDS, handed_of, holding

MODES = {"apportion": "sync"} | {f"apportion_{mode}": mode for mode in ("colocate_async", "separate_async")}
"""Our trainer modes, and whose of verl each is."""


def trainer_class(base: type[Any], mode: str) -> type[Any]:
    """A trainer of verl that hands its estimator the whole batch; mode: what verl calls that trainer."""

    class ApportionTrainer(base):  # type: ignore[misc]
        def __init__(self, config: Any) -> None:
            config.trainer.v1.trainer_mode = mode  # verl reads the mode in many places, to know how to buffer
            super().__init__(config)
            self._capture = Capture.of(config)

        def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
            import transfer_queue as queue

            data = queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=FIELDS)
            handed = handed_of(data, batch.keys, batch.tags)
            handed.tokenizer = self.tokenizer
            due = self._capture.due(self.global_steps)
            handed.wants_text = due
            with holding(handed):
                written = super()._compute_advantage(batch, metrics)
            if due:
                names = ["advantages", "returns", "response_mask", "token_level_rewards"]
                seen = queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
                self._capture.take(handed, seen, self.config.algorithm, self.global_steps)
            return written

    ApportionTrainer.__name__ = ApportionTrainer.__qualname__ = f"Apportion{base.__name__}"
    return ApportionTrainer
