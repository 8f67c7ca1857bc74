"""Training runs on the embedded model, small enough to take seconds."""

from apportion.train.config import resolve
from apportion.train.loop import Trainer
from apportion.train.run_folder import RunFolder

TINY = {"prompts": 4, "group": 4, "chain_steps": 2, "max_new_tokens": 24, "held_out": 8, "ledger_every": 2}


class Silent:
    def evaluated(self, when, rate):
        pass

    def stepped(self, metrics, timings):
        pass


def train(path, **settings):
    config = resolve(TINY | settings)
    run = RunFolder.new(path)
    Trainer(run, config, Silent()).train()
    return run
