"""Maximum flows, against SciPy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import maximum_flow as scipys

from nimble.schedule.flow import maximum_flow


@given(st.data(), st.integers(2, 12))
def test_flows_are_scipys(data, nodes):
    pairs = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1))
    edges = data.draw(st.dictionaries(pairs.filter(lambda p: p[0] != p[1]), st.integers(0, 9)))
    given = [(tail, head, most) for (tail, head), most in edges.items()]
    tails, heads, most = np.array(given, np.int32).reshape(-1, 3).T
    network = csr_array(coo_array((most, (tails, heads)), shape=(nodes, nodes)))
    expected = int(scipys(network, 0, nodes - 1).flow_value)
    assert maximum_flow(nodes, given, 0, nodes - 1) == expected


@pytest.mark.parametrize("length", [1, 3000])
def test_long_chains_and_more_bytes_than_32_bits(length):
    edges = [(node, node + 1, 2**40 + node) for node in range(length)]
    assert maximum_flow(length + 1, edges, 0, length) == 2**40
