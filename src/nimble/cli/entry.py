"""Where the `nimble` command begins: its first word decides what is loaded."""

from __future__ import annotations

import sys


def main() -> None:
    """Without PyTorch, which takes seconds to load, where the cluster is all that is asked for."""
    if sys.argv[1:2] == ["cluster"]:
        from nimble.cli.cluster import cluster_app

        cluster_app(args=sys.argv[2:], prog_name="nimble cluster")
    else:
        from nimble.cli.main import app

        app(prog_name="nimble")
