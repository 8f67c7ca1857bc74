"""The terminal that all commands write to."""

from rich.console import Console

console = Console()
