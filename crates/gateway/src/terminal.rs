//! Detects the features of a terminal.

use std::ffi::OsStr;
use std::io::IsTerminal;

/// Reports whether the stream supports colours: it is a terminal, and colours are not disabled.
pub fn takes_colour(stream: &impl IsTerminal) -> bool {
    let says = |name: &str, value: fn(&OsStr) -> bool| {
        std::env::var_os(name).is_some_and(|set| value(&set))
    };
    stream.is_terminal()
        && !says("NO_COLOR", |value| !value.is_empty())
        && !says("TERM", |value| value == "dumb")
}
