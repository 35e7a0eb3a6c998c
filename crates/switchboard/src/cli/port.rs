//! Who listens on an address that is taken.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The process that listens there, in words; what cannot be found out (it belongs to another user) is said, too.
pub(super) fn holder(address: SocketAddr) -> String {
    listener(address).unwrap_or_else(|| "another program".to_owned())
}

/// The same, if anybody is known to listen there.
pub(super) fn listener(address: SocketAddr) -> Option<String> {
    let inode = listening_inode(address)?;
    let Some((pid, name)) = owner(inode) else { return Some("a program of another user".to_owned()) };
    Some(format!("process {pid} ({name})"))
}

/// The socket that listens where this address would, from the kernel's tables.
fn listening_inode(address: SocketAddr) -> Option<u64> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|file| std::fs::read_to_string(file).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines().skip(1)).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        let held = parse(local)?;
        // 0A is a socket that listens. One for all addresses takes each of them.
        let same = held.ip() == address.ip() || held.ip().is_unspecified() || address.ip().is_unspecified();
        (*state == "0A" && held.port() == address.port() && same).then(|| inode.parse().ok())?
    })
}

/// `0100007F:0C8A`: words of four bytes in the machine's order, then the port.
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

/// The process that has a socket open, as far as this user may see.
fn owner(inode: u64) -> Option<(u32, String)> {
    let wanted = format!("socket:[{inode}]");
    let processes = std::fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let holds = |pid: &u32| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|link| link == Path::new(&wanted))
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
            // Not every machine has the second protocol.
            let Ok(listener) = std::net::TcpListener::bind(place) else { continue };
            let taken = listener.local_addr().unwrap();
            let found = holder(taken);
            assert!(found.starts_with(&format!("process {} (", std::process::id())), "{taken}: {found}");
            drop(listener);
            assert_eq!(listening_inode(taken), None, "{taken} is free again");
        }
    }
}
