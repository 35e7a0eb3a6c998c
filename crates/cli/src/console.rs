//! The `console` command: creates a sign-in link.

use reqwest::Method;
use serde::Deserialize;

use super::Global;
use super::client::Client;
use super::output::{Failure, json, line};

#[derive(Deserialize)]
struct Link {
    path: String,
    expires_in_s: u64,
}

pub(super) async fn run(global: &Global) -> Result<(), Failure> {
    let client = Client::new(global)?;
    let response = client.send(client.request(Method::POST, "/v1/console/links")).await?;
    let text = response.text().await.map_err(|error| client.unreachable(&error))?;
    if global.json {
        return json(&text);
    }
    let link: Link = client.read(&text)?;
    line(&format!("{}{}", client.base(), link.path))?;
    // Printed on stderr, because scripts read the link from stdout.
    eprintln!("Works once, for {} minutes.", link.expires_in_s / 60);
    Ok(())
}
