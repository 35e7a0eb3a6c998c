//! Explains why a gateway cannot start, most often because another gateway already runs.

use std::net::SocketAddr;
use std::time::{Duration, UNIX_EPOCH};

use sa_core::clock;
use sa_store::Holder;
use sa_vault::bounded;

use super::output::Failure;
use super::port;
use sa_gateway::config::Config;
use sa_text::span;

/// The timeout for identifying the program that listens on the address.
const TIMEOUT: Duration = Duration::from_secs(1);
/// A path that no gateway serves and that needs no token. The gateway's error response identifies
/// it.
const NOTHING: &str = "/console/assets/nothing";
/// The maximum size of the response. A gateway's error response is smaller.
const MAX_ANSWER: usize = 64 * 1024;
const OURS: &str = "urn:switchboard:problem:";

/// Returns the failure if another program listens on the gateway's address.
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
                "cannot listen on {listen}: a connection of {holder} uses that port; no process listens there"
            ))
            .hint(format!(
                "try again when that connection is closed, or choose another address; {beside} selects a free port"
            ));
        }
        port::Holder::Unknown => "another program".to_owned(),
    };
    if is_gateway(listen).await {
        let message = format!(
            "cannot listen on {listen}: a Switchboard with another data directory listens there, {holder}"
        );
        return Failure::other(message).hint(format!(
            "to use that one, set its data directory with --data-dir DIR,\n\
             or its address and its token with --url URL and --token-file FILE;\n\
             to run this one as well, use {beside}, which selects a free port"
        ));
    }
    Failure::other(format!(
        "cannot listen on {listen}: {holder} already listens there, and is not Switchboard"
    ))
    .hint(format!("stop that process, or choose another address; {beside} selects a free port"))
}

/// Returns the failure if a gateway already uses this data directory and has written its address.
pub(super) fn on_data_of(config: &Config) -> Option<Failure> {
    let Holder { pid, since } = Holder::of(&config.store_file())?;
    // A gateway that is still starting has written no address yet, or only part of it.
    let url = bounded::text_of_file(&config.endpoint_file(), bounded::TOKEN)
        .ok()
        .filter(|url| !url.trim().is_empty())?;
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let ran = u128::try_from(clock::now_ms()).unwrap_or_default().saturating_sub(since);
    let ran = span(u64::try_from(ran).unwrap_or(u64::MAX));
    let message = format!(
        "Switchboard is already running on {}: at {}, as process {pid}, for {ran}",
        config.data_dir.display(),
        url.trim()
    );
    Some(Failure::other(message).hint(format!(
        "to use it, run `{}`, or `{}` for a link to its console;\n\
         to stop it, press Ctrl-C where it was started, or run `kill {pid}`;\n\
         to run another one as well, use `--listen 127.0.0.1:0 --data-dir DIR`",
        config.typed("status"),
        config.typed("console")
    )))
}

/// Reports whether a gateway answers at this address.
async fn is_gateway(address: SocketAddr) -> bool {
    // Certificates are not verified, because no secret is sent.
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_danger_accept_invalid_certs(true)
        .timeout(TIMEOUT)
        .build();
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
