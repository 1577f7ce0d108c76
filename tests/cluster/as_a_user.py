"""`nimble cluster` as a user types it, and the figures it writes."""

import json

from typer.testing import CliRunner

from nimble.cli.cluster import cluster_app

SMALL = ["--cluster", "2x2x4", "--jobs", "40", "--load", "1.2", "--seed", "3"]


def cluster(*words):
    return CliRunner().invoke(cluster_app, [*map(str, words)])


def figures(path):
    return json.loads(path.read_text())
