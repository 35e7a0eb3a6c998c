//! Tests with real processes, one behaviour a file.
