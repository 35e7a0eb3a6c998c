//! A server that closes the connection gets an answer, and one that breaks the WebSocket protocol
//! gets a close with the reason.

use std::time::Duration;

use futures_util::StreamExt as _;
use sa_messaging::Client;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;

#[tokio::test]
async fn a_server_hears_how_the_connection_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    for (bytes, code) in [
        // A close with a code, which is also the code of its answer.
        (&[0x88, 2, 0x03, 0xe9][..], 1001),
        // An unknown kind of frame, a text that is not UTF-8, and the beginning of a frame that is
        // too large.
        (&[0x83, 0], 1002),
        (&[0x81, 1, 0xff], 1007),
        (&[0x81, 127, 0, 0, 1, 0, 0, 0, 0, 0], 1009),
    ] {
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
            socket.get_mut().write_all(bytes).await.unwrap();
            loop {
                match socket.next().await {
                    Some(Ok(Message::Close(frame))) => return frame.map(|frame| frame.code.into()),
                    Some(Ok(_)) => {}
                    ended => panic!("expected a close, got {ended:?}"),
                }
            }
        };
        let client =
            Client::builder().server(&url).token("t").channel("room").handle("me").connect();
        let both =
            tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(client, server) });
        let (client, heard) = both.await.expect("this never happened");
        assert_eq!(heard, Some(code));
        assert!(client.is_err(), "nothing was welcomed");
    }
}
