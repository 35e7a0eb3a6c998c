//! A worker that greets people, and answers messages in its channel that mention it.
//!
//! ```sh
//! SWITCHBOARD_TOKEN=$(switchboard token create greeter --role participant) \
//!     cargo run -p sa-messaging --example greeter -- lobby
//! switchboard channel call lobby pubsub_greeter_greet name=Ann
//! ```

use futures_util::StreamExt as _;
use sa_messaging::{Client, Error, Event, EventFilter, Method, MethodContext, SendOptions};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Greet {
    /// The name of the person to greet.
    name: String,
}

async fn greet(args: Greet, context: MethodContext) -> Result<String, Error> {
    context.progress(50.0).await?;
    Ok(format!("Hello, {}!", args.name))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // An empty variable counts as unset.
    let server = std::env::var("SWITCHBOARD_URL").ok().filter(|url| !url.is_empty());
    let server = server.unwrap_or_else(|| "ws://127.0.0.1:3210".into());
    let client = Client::builder()
        .server(server)
        .token(std::env::var("SWITCHBOARD_TOKEN")?)
        .channel(std::env::args().nth(1).unwrap_or_else(|| "lobby".into()))
        .handle("greeter")
        .name("Greeter")
        .kind("worker")
        .skip_own_messages(true)
        .method(Method::new("greet", greet).description("Says hello."))
        .connect()
        .await?;
    println!("here as {}", client.client_id());
    let mut events = client.events(EventFilter { targeted_only: true, ..EventFilter::default() });
    loop {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => break,
            event = events.next() => {
                let Some(Event::Message(message)) = event else { break };
                let reply = SendOptions { reply_to: Some(message.payload.id.clone()), ..SendOptions::default() };
                client.send(format!("Hello, {}!", message.envelope.sender_id), reply).await?;
            }
        }
    }
    client.close().await;
    Ok(())
}
