//! A gateway that breaks the WebSocket protocol receives a close with the reason, before its
//! welcome and after it. The node then reconnects.

use crate::support::*;

#[tokio::test]
async fn a_gateway_hears_what_it_did_wrong() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder(), echo());
    for (bytes, code) in [
        // An unknown kind of frame, a text that is not UTF-8, and the beginning of a frame that is
        // too large.
        (&[0x83, 0][..], 1002),
        (&[0x81, 1, 0xff], 1007),
        (&[0x81, 127, 0, 0, 1, 0, 0, 0, 0, 0], 1009),
    ] {
        let mut peer = gateway.upgrade().await;
        peer.send_bytes(bytes).await;
        assert_eq!(peer.recv_close().await.map(|close| close.code.into()), Some(code));
        drop(peer);
        let mut peer = gateway.welcome(&[]).await;
        peer.send_bytes(bytes).await;
        assert_eq!(peer.recv_close().await.map(|close| close.code.into()), Some(code));
    }
    gateway.welcome(&[]).await;
    node.shut_down().await;
}
