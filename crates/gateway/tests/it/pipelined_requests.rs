//! A caller that hangs up cancels its call, even if it has sent more on the connection.

use sa_gateway_kit::{Hello, Setup};

/// Unread data behind a request hides the caller's disconnect from the task that reads the
/// connection.
#[tokio::test]
async fn a_caller_hangs_up_with_something_behind_the_request() {
    use tokio::io::AsyncWriteExt as _;
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let (address, token) = (gateway.address(), &gateway.operator);
    let next = format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\n\r\n");
    for accept in ["application/json", "text/event-stream"] {
        for behind in ["\r\n", "x", &next, &next.repeat(500)] {
            let mut caller = tokio::net::TcpStream::connect(address).await.unwrap();
            let request = format!(
                "POST /v1/tools/a.b/call HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
                 content-type: application/json\r\naccept: {accept}\r\ncontent-length: 2\r\n\r\n{{}}{behind}"
            );
            caller.write_all(request.as_bytes()).await.unwrap();
            let request = node.request().await;
            drop(caller);
            assert_eq!(
                node.cancelled(&request).await,
                "disconnected",
                "{accept}, {} bytes behind",
                behind.len()
            );
        }
    }
}
