//! Limits: budgets that principals share, and CPU-heavy work that does not block other tasks.

pub mod budget;
pub mod offload;

pub use offload::offload;
