//! Rule: a command that may open no Unix socket reaches none of the host.

use std::os::unix::net::UnixDatagram;

use sa_sandbox::Policy;

use crate::rig::{Rig, users};

/// Sends to a socket in the workspace with one socket of a pair.
const SEND: &str = r#"python3 -c '
import socket, sys
kind = getattr(socket, sys.argv[1])
one, other = socket.socketpair(socket.AF_UNIX, kind)
one.send(b"a")
print("pair", other.recv(1).decode())
try:
    one.sendto(b"escaped", "host.sock")
    print("sent")
except OSError:
    print("not sent")
' "#;

#[test]
fn a_pair_of_sockets_sends_to_no_other_socket() {
    for user in users() {
        for network in [false, true] {
            let mut rig = Rig::new(*user);
            rig.policy = Policy::new(network).with_writable(&rig.workspace());
            let host = UnixDatagram::bind(rig.workspace().join("host.sock")).unwrap();
            host.set_nonblocking(true).unwrap();
            let allow = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            std::fs::set_permissions(rig.workspace().join("host.sock"), allow).unwrap();
            // A connected socket sends to its peer only, whatever the address is.
            for kind in ["SOCK_STREAM", "SOCK_SEQPACKET"] {
                let output = rig.output(&format!("{SEND}{kind}"));
                assert!(output.starts_with("pair a\n"), "{user:?} {kind}: {output}");
            }
            for kind in ["SOCK_DGRAM", "SOCK_RAW"] {
                let output = rig.output(&format!("{SEND}{kind}"));
                assert!(output.contains("Permission denied"), "{user:?} {kind}: {output}");
            }
            assert!(host.recv(&mut [0; 8]).is_err(), "{user:?}: the host received a message");
        }
    }
}
