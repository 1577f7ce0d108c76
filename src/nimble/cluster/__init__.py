"""Many jobs on many machines: topology, jobs, traces, policies and the simulator."""
