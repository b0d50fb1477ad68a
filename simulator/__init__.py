"""The real core in virtual time: traces, virtual nodes, faults and what came of them."""
