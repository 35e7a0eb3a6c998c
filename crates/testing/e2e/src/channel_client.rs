//! A participant process that tests kill. It connects to the given address, prints a line when it
//! has joined, and reads.

use anyhow::Context as _;
use futures_util::StreamExt as _;
use tokio_tungstenite::tungstenite::Message;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args().nth(1).context("give the address of a channel")?;
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await?;
    while let Some(message) = socket.next().await {
        if let Message::Text(text) = message?
            && text.contains("\"kind\":\"ready\"")
        {
            println!("ready");
        }
    }
    Ok(())
}
