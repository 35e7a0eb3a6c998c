//! The wire shapes of Switchboard's own protocols: pure serde, no runtime.
