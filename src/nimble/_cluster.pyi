"""The running jobs of a cluster: free GPUs, shared links, progress. See native/cluster."""

from nimble.cluster.topology import Placement

class Fleet:
    """Domains and links are numbered as in nimble/cluster/topology.py.

    `allowed` is a bit mask of machine classes; all machines are of class 0 unless set otherwise.
    """

    def __init__(
        self,
        gpus: list[int],
        parent: list[int],
        capacity: list[float],
        contention: bool = True,
        checkpoint_every_s: float = ...,
        classes: int = 1,
    ) -> None: ...
    @property
    def free(self) -> int:
        """Free GPUs on open machines."""

    def free_in(self, domain: int, allowed: int = ...) -> int:
        """Free GPUs on open machines of a domain."""

    def left(self, machine: int) -> int:
        """Free GPUs of a machine, open or not."""

    def fit(self, gpus: int, tier: int, choice: int = 0, allowed: int = ...) -> Placement | None:
        """As nimble.cluster.fit has it."""

    def take(self, placement: Placement, of_closed: bool = False) -> None:
        """ValueError (its text is the machine) if one has not as many free, or is closed."""

    def give(self, placement: Placement) -> None:
        """ValueError if a machine would have more than it has; then nothing is given."""

    def set_open(self, machine: int, open: bool) -> None:
        """A closed machine offers nothing; what is given back stays there until it opens."""

    def set_class(self, machine: int, to: int) -> None: ...
    def begin(
        self,
        job: int,
        now: float,
        at: float,
        done: float,
        total: float,
        speed: float,
        demand: float,
        traffic: tuple[tuple[int, float], ...],
    ) -> None:
        """From `at` on a job does `speed` units a second alone; traffic counts from `now` on."""

    def end(self, job: int, now: float) -> float:
        """Takes a job out; gives the units done."""

    def fail(self, job: int, now: float) -> float:
        """Takes a job out; gives the units that its last checkpoint holds."""

    def done(self, job: int, now: float) -> float: ...
    def share(self, job: int) -> float:
        """Its rate relative to its demand: 1 unless a link is contended."""

    def probe(self, demand: float, traffic: tuple[tuple[int, float], ...]) -> float:
        """The share that a job would get if it began now."""

    def settle(self, now: float) -> list[tuple[int, float]]:
        """Makes rates fair after jobs came and went; gives (job, share) of those that changed."""

    def next(self) -> tuple[float, int]:
        """When the next job ends, and which; (inf, -1) if none runs."""

    def load(self, link: int) -> float:
        """Bytes/s each way."""

    def flows_on(self, link: int) -> int: ...
    def shared_link_s(self, now: float) -> float:
        """Sum over links of the time with two jobs or more on it."""

    def slowed_s(self, now: float) -> float:
        """Sum over jobs of the time below their speed alone."""
