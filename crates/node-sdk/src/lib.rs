//! Build nodes: connect to a gateway, offer tools, answer calls.
