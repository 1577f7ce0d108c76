"""What tests share. Being here, it also lets them import the modules beside it."""

import atexit
import os
import shutil
import tempfile

os.environ["NIMBLE_VERIFY"] = "1"
# What was measured before must not decide what is tested.
os.environ["NIMBLE_CACHE"] = tempfile.mkdtemp(prefix="nimble-tests-")
atexit.register(shutil.rmtree, os.environ["NIMBLE_CACHE"], ignore_errors=True)
