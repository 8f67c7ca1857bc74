"""`python -m apportion` is `apportion`."""

from apportion.cli import main

main()
