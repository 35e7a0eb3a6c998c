//! Bash and Process with real processes.

mod support;
mod shell {
    mod background;
    mod foreground;
    mod sandbox;
    mod trees;
}
