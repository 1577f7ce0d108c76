"""What tests share. Being here, it also lets them import the modules beside it."""

import os

os.environ["NIMBLE_VERIFY"] = "1"
