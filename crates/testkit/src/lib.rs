//! For tests: a gateway on port 0, nodes, agents.
