//! Limits: budgets that principals share, rates, the choice of what to delete when a store is full,
//! and CPU-heavy work that does not block other tasks.

pub mod budget;
pub mod eviction;
pub mod offload;
pub mod rate;
pub mod received;
pub mod sampler;

pub use offload::offload;
