"""Traces of real clusters: read a file, then make jobs of what it says.

>>> import tempfile, pathlib
>>> from nimble.cluster.profiles import bundled
>>> path = pathlib.Path(tempfile.mkdtemp()) / "two.csv"
>>> _ = path.write_text("submit_s,gpus,duration_s\\n0,1,60\\n5,4,90\\n")
>>> trace = read_trace(path)
>>> trace.format, trace.report.jobs
('plain', 2)
>>> jobs = trace.jobs(lambda profile, gpus: profile.compute_s, bundled())
>>> [job.gpus_max for job in jobs]
[1, 4]
"""

from nimble.cluster.traces.read import FORMATS, read_trace
from nimble.cluster.traces.report import BadRow, TraceReport
from nimble.cluster.traces.trace import Entry, Trace

__all__ = ["FORMATS", "BadRow", "Entry", "Trace", "TraceReport", "read_trace"]
