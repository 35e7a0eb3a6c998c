//! Finds the process that occupies an address.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The process that occupies an address, described in words.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Listener(String),
    /// No process listens there. A connection uses the port as its local port, either by chance or
    /// because it was closed recently.
    Connection(String),
    /// The kernel's tables have no entry for the address.
    Unknown,
}

/// Returns the process that occupies the address. A process of another user is reported as such.
pub(super) fn holder(address: SocketAddr) -> Holder {
    let connection = || {
        socket(address, |state| state != LISTENS).map(|inode| Holder::Connection(process(inode)))
    };
    listener(address).map(Holder::Listener).or_else(connection).unwrap_or(Holder::Unknown)
}

/// Returns the process that listens on the address, if known.
pub(super) fn listener(address: SocketAddr) -> Option<String> {
    socket(address, |state| state == LISTENS).map(process)
}

fn process(inode: u64) -> String {
    match owner(inode) {
        Some((pid, name)) => format!("process {pid} ({name})"),
        // A closed connection has no owner, and keeps its port for a minute.
        None if inode == 0 => "a program that has ended".to_owned(),
        None => "a program of another user".to_owned(),
    }
}

/// The state of a listening socket in the kernel's tables.
const LISTENS: &str = "0A";

/// Returns the inode of the socket with this address and a matching state.
fn socket(address: SocketAddr, is_state: impl Fn(&str) -> bool) -> Option<u64> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"]
        .map(|file| std::fs::read_to_string(file).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines().skip(1)).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        let held = parse(local)?;
        // A socket on the unspecified address occupies the port on all addresses.
        let same = held.ip() == address.ip()
            || held.ip().is_unspecified()
            || address.ip().is_unspecified();
        (is_state(state) && held.port() == address.port() && same).then(|| inode.parse().ok())?
    })
}

/// Parses `0100007F:0C8A`: the address as 4-byte words in native byte order, then the port.
fn parse(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for at in (0..ip.len()).step_by(8) {
        bytes.extend(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    }
    let ip: IpAddr = match <[u8; 16]>::try_from(bytes.as_slice()) {
        Ok(long) => std::net::Ipv6Addr::from(long).to_canonical(),
        Err(_) => <[u8; 4]>::try_from(bytes.as_slice()).ok()?.into(),
    };
    Some(SocketAddr::new(ip, port))
}

/// Returns the process that has the socket open, as far as this user may see.
fn owner(inode: u64) -> Option<(u32, String)> {
    let wanted = format!("socket:[{inode}]");
    let processes = std::fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let holds = |pid: &u32| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| std::fs::read_link(file.path()).ok())
            .any(|link| link == Path::new(&wanted))
    };
    let pid = processes.into_iter().find(holds)?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some((pid, name.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_who_listens_is_found() {
        for place in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
            // Not every machine supports IPv6.
            let Ok(listener) = std::net::TcpListener::bind(place) else { continue };
            let taken = listener.local_addr().unwrap();
            let Holder::Listener(found) = holder(taken) else {
                panic!("no process listens on {taken}")
            };
            assert!(
                found.starts_with(&format!("process {} (", std::process::id())),
                "{taken}: {found}"
            );
            drop(listener);
            assert_eq!(holder(taken), Holder::Unknown, "{taken} is free again");
        }
    }

    #[test]
    fn a_clients_own_port_is_no_listener() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(server.local_addr().unwrap()).unwrap();
        let taken = client.local_addr().unwrap();
        assert_eq!(
            std::net::TcpListener::bind(taken).unwrap_err().kind(),
            std::io::ErrorKind::AddrInUse
        );
        let Holder::Connection(found) = holder(taken) else {
            panic!("{:?} has {taken}", holder(taken))
        };
        assert!(found.starts_with(&format!("process {} (", std::process::id())), "{found}");
        assert_eq!(listener(taken), None);
    }
}
