"""The `nimble` command."""
