"""`python -m nimble`."""

from nimble.cli.entry import main

main()
