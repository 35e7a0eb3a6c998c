//! Host names with a port.

/// Splits `host:port` or `[::1]:port`. The port is optional.
pub fn split_port(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && (!host.contains(':') || host.ends_with(']')) => {
            (host, Some(port))
        }
        _ => (name, None),
    }
}
