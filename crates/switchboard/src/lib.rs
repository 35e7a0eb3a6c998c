//! One gateway between AI agents and the tools they call.
