//! The example plugins of the project as part of the demo: their servers in one Node.js process, which ends with the gateway.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use sa_plugins::{Addition, ChangeError, Plugins, Terms};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tracing::warn;
use url::Url;

use crate::redact::printable;

/// How long Node.js may take to start three small servers, on a machine that has much else to do.
const START_PATIENCE: Duration = Duration::from_secs(20);

/// Where plugins of an earlier demo were.
const THIS_MACHINE: &str = "http://127.0.0.1:";

/// The servers while they run. They end with this value, and with this process however that ends: their stdin is a pipe from here.
#[derive(Debug)]
pub struct Examples {
    _servers: Child,
    manifests: Vec<Url>,
    added: Vec<String>,
}

impl Examples {
    /// Starts the servers in `folder`; the error says why there are none.
    pub async fn start(folder: &Path) -> Result<Self, String> {
        let script = folder.join("demo.mjs");
        if !script.is_file() {
            return Err(format!("there is no {}", script.display()));
        }
        let mut command = Command::new("node");
        // They need nothing of the gateway's environment, which may hold secrets. A group of their own keeps Ctrl-C from them: calls that
        // run then may still end.
        command.arg(&script).env_clear().process_group(0).kill_on_drop(true);
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut servers = spawned.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "Node.js is not installed (apt install nodejs)".to_owned(),
            _ => format!("Node.js cannot be started: {error}"),
        })?;
        let stdout = servers.stdout.take().ok_or("Node.js has no output")?;
        let manifests = tokio::time::timeout(START_PATIENCE, manifests(stdout)).await;
        let see = format!("to see why: node {}", script.display());
        match manifests {
            Ok(Ok(manifests)) => Ok(Self { _servers: servers, manifests, added: Vec::new() }),
            Ok(Err(why)) => Err(format!("{why}; {see}")),
            Err(_) => Err(format!("they took more than {} seconds to start; {see}", START_PATIENCE.as_secs())),
        }
    }

    /// Adds the plugins; the answer is their titles, and what went wrong.
    pub async fn add_to(&mut self, plugins: &Plugins) -> Vec<String> {
        let mut titles = Vec::new();
        for url in self.manifests.clone() {
            match add(plugins, &url).await {
                Ok((identifier, title)) => {
                    titles.push(title);
                    self.added.push(identifier);
                }
                Err(error) => {
                    let error = error.to_string();
                    warn!(manifest = %url, error = %printable(&error), "an example plugin was left out");
                }
            }
        }
        titles
    }

    /// Takes the plugins out again: at the next start their servers are elsewhere, or nowhere.
    pub async fn remove_from(&self, plugins: &Plugins) {
        for identifier in &self.added {
            // Somebody may have removed it already.
            if let Err(error) = plugins.remove(identifier).await {
                tracing::debug!(%error, "an example plugin was not there to be removed");
            }
        }
    }
}

/// A plugin that a person has added from somewhere else keeps its place; one that an earlier demo left behind does not.
async fn add(plugins: &Plugins, url: &Url) -> Result<(String, String), ChangeError> {
    // Each may reach its own server on this machine, and nothing else there.
    let allow_private =
        url.host_str().zip(url.port()).map(|(host, port)| format!("{host}:{port}")).into_iter().collect();
    let terms = Terms { replace: false, allow_private };
    let added = match plugins.add(Addition::Url(url.clone()), &terms).await {
        Err(ChangeError::Exists(identifier)) => {
            let source = plugins.show(&identifier)?.source.unwrap_or_default();
            if !source.starts_with(THIS_MACHINE) {
                return Err(ChangeError::Exists(identifier));
            }
            plugins.add(Addition::Url(url.clone()), &Terms { replace: true, ..terms }).await?
        }
        added => added?,
    };
    let manifest = added.plugins.into_iter().next().map(|view| view.manifest);
    let manifest = manifest.ok_or_else(|| ChangeError::Invalid("it is an empty index".into()))?;
    let title = manifest.meta.title.unwrap_or_else(|| manifest.identifier.clone());
    Ok((manifest.identifier, title))
}

async fn manifests(stdout: impl tokio::io::AsyncRead + Unpin) -> Result<Vec<Url>, String> {
    let mut lines = BufReader::new(stdout).lines();
    let mut found = Vec::new();
    while let Some(line) = lines.next_line().await.map_err(|error| error.to_string())? {
        if line == "ready" {
            return Ok(found);
        }
        let url = line.strip_prefix("listening on ").and_then(|url| Url::parse(url).ok()?.join("/manifest.json").ok());
        // The gateway is about to be allowed to call these, so they are this machine's and nothing else.
        match url.filter(|url| url.as_str().starts_with(THIS_MACHINE)) {
            Some(url) => found.push(url),
            None => return Err(format!("they said \"{}\"", printable(&line))),
        }
    }
    Err("they ended before they were ready".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check_manifests(output: &str, expected: Result<&[&str], &str>) {
        let found = manifests(output.as_bytes()).await;
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found.iter().map(Url::as_str).collect::<Vec<_>>(), expected),
            (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
            (found, _) => panic!("{output}: {found:?}"),
        }
    }

    #[tokio::test]
    async fn only_servers_on_this_machine_count() {
        let one = "listening on http://127.0.0.1:4000\n";
        check_manifests(&format!("{one}ready\n"), Ok(&["http://127.0.0.1:4000/manifest.json"])).await;
        check_manifests(one, Err("ended before")).await;
        check_manifests("listening on http://10.0.0.1:80\nready\n", Err("10.0.0.1")).await;
        check_manifests("Error: no\nready\n", Err("Error: no")).await;
    }
}
