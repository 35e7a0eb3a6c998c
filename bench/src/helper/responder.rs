//! The NATS equivalent of a tool.

use std::net::SocketAddr;

use futures_util::StreamExt as _;

pub(super) async fn run(server: SocketAddr) -> anyhow::Result<()> {
    let client = crate::nats::connect(server).await?;
    let mut requests = client.subscribe(super::SUBJECT).await?;
    client.flush().await?;
    println!("ready");
    while let Some(request) = requests.next().await {
        if let Some(reply) = request.reply {
            client.publish(reply, request.payload).await?;
        }
    }
    Ok(())
}
