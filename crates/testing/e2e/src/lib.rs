//! Tests with real processes, one behaviour per file.
