"""A contestant's process starts soon: it imports nothing that its contestant does not need."""

import subprocess
import sys


def test_dynamo_is_imported_for_torch_compile_only():
    done = subprocess.run(
        [sys.executable, "-c", "import nimble, sys; print('torch._dynamo' in sys.modules)"],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "False"
