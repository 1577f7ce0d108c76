"""Clusters: from a shape, from our YAML, from Slurm's files; and what their links do to a job."""

from __future__ import annotations

import pytest

from nimble.cluster import Collective, Profile, cost, grid, parse
from nimble.cluster.fit import tightest
from nimble.cluster.network import crossed
from nimble.cluster.slurm import expand
from nimble.cluster.topology_files import load_topology
from nimble.errors import InputError


def test_a_shape_is_racks_machines_gpus():
    topology = parse("2x3x8")
    assert topology.gpus == 48
    assert [tier.name for tier in topology.tiers] == ["machine", "rack", "network"]
    assert topology.domains == ((0, 1, 2, 3, 4, 5), (6, 7), (8,))
    assert topology.parent == (6, 6, 6, 7, 7, 7, 8, 8, -1)
    assert topology.largest == (8, 24, 48)
    assert topology.span[7] == (3, 6)
    assert topology.tier(((0, 2), (2, 2))) == 1
    assert topology.tier(((0, 2), (3, 2))) == 2
    assert parse("8").gpus == 8
    assert len(parse("2x2x2x2x2").tiers) == 5


def test_oversubscription_is_of_the_links_above_the_machines():
    fair, scarce = parse("2x4x8"), parse("2x4x8", oversubscription=4)
    assert fair.capacity[0] == scarce.capacity[0]
    assert fair.capacity[-1] == 4 * fair.capacity[0]
    assert scarce.capacity[-1] == fair.capacity[0]


@pytest.mark.parametrize("text", ["", "16x", "ax8", "0x8", "4x-1"])
def test_a_bad_shape_is_refused(text):
    with pytest.raises(InputError, match="16x16x8"):
        parse(text)


OURS = """
shape: 2x2x4
oversubscription: 2
kinds: [v100, k80]
tiers:
  machine: {bandwidth: 100 GB/s, latency: 1 us}
  rack: {bandwidth: 80 Gbit/s}
links: {rack1: 5 GB/s}
"""
TREE = """
tree:
  a: {m0: 8, m1: {gpus: 4, kind: k80}}
  b: {m2: 2}
"""
CONF = """
# two leaves
SwitchName=s[0-1] Nodes=dummy
SwitchName=s0 Nodes=n[0-3] LinkSpeed=100
SwitchName=s1 Nodes=n[04-05]
SwitchName=top Switches=s[0-1]
"""
SLURM = """
- topology: t
  cluster_default: true
  tree:
    switches:
      - {switch: top, children: "s[1-2]"}
      - {switch: s1, nodes: "n[1-2]"}
      - {switch: s2, nodes: "n[3-4]"}
"""


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_our_yaml(tmp_path):
    topology = load_topology(written(tmp_path, "c.yaml", OURS))
    assert [m.kind for m in topology.machines] == ["v100", "k80", "v100", "k80"]
    assert topology.capacity == (1e10, 1e10, 1e10, 1e10, 1e10, 5e9)
    assert topology.tiers[0].latency_s == 1e-6
    assert topology.tiers[0].bandwidth == 1e11


def test_a_tree_of_unlike_machines(tmp_path):
    topology = load_topology(written(tmp_path, "c.yaml", TREE))
    assert [(m.name, m.gpus, m.kind) for m in topology.machines] == [
        ("m0", 8, ""),
        ("m1", 4, "k80"),
        ("m2", 2, ""),
    ]
    assert topology.names[3:] == ("a", "b", "network")
    assert topology.size[3:] == (12, 2, 14)


def test_slurms_files(tmp_path):
    conf = load_topology(written(tmp_path, "topology.conf", CONF), gpus_per_machine=4)
    assert [m.name for m in conf.machines] == ["n0", "n1", "n2", "n3", "n04", "n05"]
    assert conf.gpus == 24
    assert conf.names[6:] == ("s0", "s1", "top")
    slurm = load_topology(written(tmp_path, "topology.yaml", SLURM))
    assert [m.name for m in slurm.machines] == ["n1", "n2", "n3", "n4"]
    assert slurm.parent == (4, 4, 5, 5, 6, 6, -1)
    assert expand("a[0-1]x,b,c[08-10]") == ["a0x", "a1x", "b", "c08", "c09", "c10"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("c.yaml", "racks: 3", "unknown racks"),
        ("c.yaml", "shape: 2x2\ntiers: {row: {latency: 1 us}}", "unknown tiers row"),
        ("c.yaml", "shape: 2x2\nlinks: {x: 1 GB/s}", "links of unknown x"),
        ("c.yaml", "shape: 2x2\nlinks: {machine0: 1 furlong}", "expected a number and one of"),
        ("c.yaml", "tree: {a: {}}", "expected members"),
        ("c.yaml", "{", "not YAML"),
        ("c.yaml", "tree: {a: {m: 0}}", "m is 0; expected members, or a number of GPUs"),
        ("c.yaml", "tree: {a: {m: {gpus: 4, knd: k80}}}", "unknown knd of machine m; known: gpus"),
        ("c.yaml", "tree: 8", "tree is 8; expected a mapping"),
        ("c.yaml", "shape: 2xax8", "such as 16x16x8"),
        ("c.yaml", "shape: 9999x9999x8", "at most 1,000,000 machines"),
        ("c.yaml", "shape: 2x2\nkinds: v100", "kinds is 'v100'; expected a list"),
        ("c.yaml", "shape: 2x2\nlinks: [a]", r"links is \['a'\]; expected a mapping"),
        ("c.yaml", "shape: 2x2\ntiers: {network: 5}", "tier network is 5; expected a mapping"),
        ("c.yaml", "shape: 2x2\ntiers: {network: {bandwith: 5}}", "unknown bandwith of tier netw"),
        ("c.yaml", "shape: 2x2\ntiers: {network: {latency: -5 us}}", "expected a number and one"),
        ("c.yaml", "shape: 2x2\ntiers: {machine: {bandwidth: 0}}", "tier machine has a bandwidth"),
        ("c.yaml", "shape: 2x2\noversubscription: four", "is 'four'; expected a ratio above 0"),
        ("t.conf", "SwitchName=a Nodes=n[0-99999999]", "at most 1,000,000 machines"),
        ("t.conf", "SwitchName=a Nodes=n[0-x]", "'0-x' is no range of numbers"),
        ("t.conf", "SwitchName=a Nodes=n[0-3", "a bracket is not closed"),
        ("t.yaml", "topology: [{tree: {switches: [{nodes: a}]}}]", "not as Slurm's topology.yaml"),
        ("t.conf", "SwitchName=a Switches=b", "switch b is named but not described"),
        ("t.conf", "Nodes=b", "line 1"),
    ],
)
def test_a_bad_file_is_refused_with_its_name(tmp_path, name, text, said):
    with pytest.raises(InputError, match=f"(?s){name}.*{said}"):
        load_topology(written(tmp_path, name, text))
    with pytest.raises(InputError, match="No such file"):
        load_topology(str(tmp_path / "absent.yaml"))


VGG = Profile("vgg", 0.25, (250_000_000, 250_000_000), overlap=0.2)


def test_a_ring_sends_nearly_twice_its_bytes_over_every_link():
    topology = grid((2, 2, 4))
    placement = ((0, 4), (1, 4), (2, 4))
    assert crossed(topology, placement) == [[0, 1, 2], [4, 5]]
    found = cost(topology, VGG, placement)
    weight = 2 * 11 / 12
    assert found.traffic == tuple((link, weight) for link in (0, 1, 2, 4, 5))
    wire_s = weight * 5e8 / 12.5e9 + 2 * 2 * 11 * topology.tiers[2].latency_s
    assert found.iteration_s == pytest.approx(0.25 + wire_s - 0.2 * 0.25)
    assert found.tier == 2


def test_one_gpu_or_one_machine_uses_no_link():
    topology = grid((2, 2, 4))
    assert cost(topology, VGG, ((0, 1),)).iteration_s == 0.25
    inside = cost(topology, VGG, ((0, 4),))
    assert inside.traffic == ()
    assert inside.iteration_s == 0.25  # 5 ms on the GPUs' links, hidden


def test_a_hierarchical_all_reduce_sends_less_over_the_links():
    topology = grid((2, 2, 4))
    found = cost(topology, VGG, ((0, 4), (1, 4), (2, 4)), Collective.HIERARCHICAL)
    # Rack 0: two machines, each sends 1 to the other and half of the rack's 1; rack 1: all of it.
    assert dict(found.traffic) == pytest.approx({0: 1.5, 1: 1.5, 2: 1.0, 4: 1.0, 5: 1.0})
    tree = cost(topology, VGG, ((0, 4), (1, 4), (2, 4)), Collective.TREE)
    assert {weight for _, weight in tree.traffic} == {2.0}


def test_the_slowest_kind_of_gpu_sets_the_pace():
    topology = grid((2, 1), kinds=["", "k80"])
    profile = Profile("p", 1.0, (), speeds=(("k80", 0.25),))
    assert cost(topology, profile, ((0, 1),)).iteration_s == 1.0
    assert cost(topology, profile, ((0, 1), (1, 1))).iteration_s == 4.0


def test_the_tightest_placement_of_an_empty_cluster():
    topology = grid((2, 2, 4))
    assert tightest(topology, 3) == ((0, 3),)
    assert tightest(topology, 6) == ((0, 4), (1, 2))
    assert tightest(topology, 10) == ((0, 4), (1, 4), (2, 2))
    assert tightest(topology, 17) is None


def test_a_ratio_is_said_once(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("shape: 2x2x4\noversubscription: 4")
    assert load_topology(str(path)) == load_topology(str(path), oversubscription=4)
    with pytest.raises(InputError, match="the file says oversubscription 4, and 8 was asked for"):
        load_topology(str(path), oversubscription=8)


def test_a_latency_may_be_zero(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("shape: 2x2x4\ntiers: {rack: {latency: 0 us}}")
    assert load_topology(str(path)).tiers[1].latency_s == 0
