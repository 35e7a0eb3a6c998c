//! Memory, connections and peers that misbehave: nothing leaks, and bystanders notice nothing.

mod budgets;
mod bystanders;
mod churn;
mod connections;
mod large_answers;
mod large_messages;
mod leaks;
mod live_heap;
mod memory;
mod messages;
mod peers;
mod slow_readers;
mod unfinished_bodies;
mod unfinished_messages;
mod unread_answers;
