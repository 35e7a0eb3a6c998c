//! Tests of Bash and Process with real processes.

mod support;
mod shell {
    mod attacks;
    mod background;
    mod foreground;
    mod home;
    mod marked;
    mod sandbox;
    mod trees;
}
