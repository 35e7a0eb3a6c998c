//! The log and the records on embedded SQLite, with group commit.
