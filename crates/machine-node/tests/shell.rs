//! Tests of Bash and Process with real processes.

mod support;
mod shell {
    mod attacks;
    mod background;
    mod foreground;
    mod marked;
    mod sandbox;
    mod trees;
}
