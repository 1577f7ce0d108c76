"""The policies, one a file, by name; `file.py:Class` names a user's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from nimble.cluster.policies.a_srpt import ASrpt
from nimble.cluster.policies.dally import Dally
from nimble.cluster.policies.dally_plus import DallyPlus
from nimble.cluster.policies.fifo import Fifo
from nimble.cluster.policies.gandiva import Gandiva
from nimble.cluster.policies.gavel import Gavel
from nimble.cluster.policies.lwf import Lwf
from nimble.cluster.policies.optimus import Optimus
from nimble.cluster.policies.srsf import Srsf
from nimble.cluster.policies.srtf import Srtf
from nimble.cluster.policies.themis import Themis
from nimble.cluster.policies.tiresias import Tiresias
from nimble.cluster.policies.tiresias_gittins import TiresiasGittins
from nimble.cluster.policy import Policy

# What `--policy NAME` makes. Values are called without arguments.
POLICIES: dict[str, Callable[..., Policy]] = {
    "dally": Dally,
    "dally-20s": partial(Dally, lease_s=20.0, name="dally-20s"),
    "dally-fixed": partial(Dally, rack=6.0, network=12.0, name="dally-fixed"),
    "dally-none": partial(Dally, rack=0.0, network=0.0, name="dally-none"),
    "dally-staggered": partial(Dally, tick_s=20.0, name="dally-staggered"),
    "dally+": DallyPlus,
    "fifo": Fifo,
    "srtf": Srtf,
    "srsf": Srsf,
    "tiresias": Tiresias,
    "tiresias-released": partial(Tiresias, corrected=False),
    "tiresias-gittins": TiresiasGittins,
    "tiresias-gittins-released": partial(TiresiasGittins, corrected=False),
    "gandiva": Gandiva,
    "gandiva-released": partial(Gandiva, corrected=False),
    "themis": Themis,
    "gavel": Gavel,
    "optimus": Optimus,
    "lwf": Lwf,
    "a-srpt": ASrpt,
}
