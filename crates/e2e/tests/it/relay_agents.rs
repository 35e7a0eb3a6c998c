//! An agent that the gateway starts for a session reaches its caller's tools from inside a sandbox, and ends with its session and
//! with its gateway, whatever ends that.
