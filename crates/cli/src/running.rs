//! What is in the way of a gateway that is to be started: most often one that runs already.

use std::net::SocketAddr;
use std::time::{Duration, UNIX_EPOCH};

use sa_core::clock;
use sa_store::Holder;
use sa_vault::bounded;

use super::output::{Failure, span};
use super::port;
use crate::config::Config;

/// How long whoever listens on an address may take to say what it is.
const PATIENCE: Duration = Duration::from_secs(1);
/// A page that no gateway has, and that none asks a token for: what it says instead is like nothing that others say.
const NOTHING: &str = "/console/assets/nothing";
/// More than a gateway says of it.
const MAX_ANSWER: usize = 64 * 1024;
const OURS: &str = "urn:switchboard:problem:";

/// Somebody listens already where this gateway would.
pub(super) async fn in_the_way(config: &Config) -> Failure {
    if let Some(failure) = on_data_of(config) {
        return failure;
    }
    let listen = config.listen;
    let beside = format!("--listen {}", SocketAddr::new(listen.ip(), 0));
    let holder = match port::holder(listen) {
        port::Holder::Listener(holder) => holder,
        port::Holder::Connection(holder) => {
            return Failure::other(format!(
                "cannot listen on {listen}: a connection of {holder} uses that port; nobody listens there"
            ))
            .hint(format!(
                "try again when that connection is closed, or choose another address; {beside} takes a free port"
            ));
        }
        port::Holder::Unknown => "another program".to_owned(),
    };
    if is_gateway(listen).await {
        let message =
            format!("cannot listen on {listen}: a Switchboard on another data directory listens there, {holder}");
        return Failure::other(message).hint(format!(
            "to use that one: --data-dir DIR names its data directory,\n\
             or --url URL and --token-file FILE its address and a token of its own\n\
             to run this one beside it: {beside} takes a free port"
        ));
    }
    Failure::other(format!("cannot listen on {listen}: {holder} listens there already, and is not Switchboard"))
        .hint(format!("stop that process, or choose another address; {beside} takes a free port"))
}

/// A gateway has this data directory already, as far as it has said where it is.
pub(super) fn on_data_of(config: &Config) -> Option<Failure> {
    let Holder { pid, since } = Holder::of(&config.store_file())?;
    // One that has just begun to start has left nothing there, or half of it.
    let url =
        bounded::text_of_file(&config.endpoint_file(), bounded::TOKEN).ok().filter(|url| !url.trim().is_empty())?;
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let ran = u128::try_from(clock::now_ms()).unwrap_or_default().saturating_sub(since);
    let ran = span(u64::try_from(ran).unwrap_or(u64::MAX));
    let message = format!(
        "Switchboard is already running on {}: at {}, as process {pid}, for {ran}",
        config.data_dir.display(),
        url.trim()
    );
    Some(Failure::other(message).hint(format!(
        "to use it: {}, or for a link to its console: {}\n\
         to stop it: Ctrl-C where it was started, or kill {pid}\n\
         to run another one beside it: --listen 127.0.0.1:0 --data-dir DIR",
        config.typed("status"),
        config.typed("console")
    )))
}

/// Whether a gateway answers at this address.
async fn is_gateway(address: SocketAddr) -> bool {
    // Nothing is told to whoever answers, and so it may be anybody.
    let client = reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true).timeout(PATIENCE).build();
    let Ok(client) = client else { return false };
    let asks = async |scheme: &str| {
        let mut answer = client.get(format!("{scheme}://{address}{NOTHING}")).send().await.ok()?;
        let mut said = Vec::new();
        while let Some(more) = answer.chunk().await.ok()?.filter(|_| said.len() < MAX_ANSWER) {
            said.extend_from_slice(&more);
        }
        let problem: serde_json::Value = serde_json::from_slice(&said).ok()?;
        problem["type"].as_str().filter(|kind| kind.starts_with(OURS)).map(drop)
    };
    let (plain, encrypted) = tokio::join!(asks("http"), asks("https"));
    plain.or(encrypted).is_some()
}
