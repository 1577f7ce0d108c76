"""`python -m nimble`."""

from nimble.cli.main import app

app(prog_name="nimble")
