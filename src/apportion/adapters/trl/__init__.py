"""Credit of apportion inside TRL: its `GRPOTrainer`, with a recipe. Tested with TRL 1.16."""

from apportion.adapters.hosts import require

TESTED = ">=1.16,<1.17"

require("trl", TESTED)

from apportion.adapters.trl.ledgers import LedgerCallback  # noqa: E402
from apportion.adapters.trl.trainer import GRPOTrainer  # noqa: E402
from apportion.adapters.trl.values import Continuations  # noqa: E402
from apportion.policy.server_connection import Endpoint  # noqa: E402

__all__ = ["TESTED", "Continuations", "Endpoint", "GRPOTrainer", "LedgerCallback"]
