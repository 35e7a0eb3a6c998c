//! Limits: budgets that principals share, the choice of what to delete when a store is full, and
//! CPU-heavy work that does not block other tasks.

pub mod budget;
pub mod eviction;
pub mod offload;
pub mod received;

pub use offload::offload;
