"""Monte-Carlo values for rollouts that somebody else sampled: a file in, the file with step values out."""

from apportion.value_file.label import Labelled, label
from apportion.value_file.settings import Settings
from apportion.value_file.summary import closing_table

__all__ = ["Labelled", "Settings", "closing_table", "label"]
