//! The project's example plugins for the demo. Their servers run in one Node.js process, which ends
//! with the gateway.

use std::io;
use std::path::Path;
use std::time::Duration;

use sa_plugins::{Addition, ChangeError, Plugins, Terms};
use sa_process::{Command, Pipes, Supervisor};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::unix::pipe::Sender;
use tracing::warn;
use url::Url;

use sa_text::printable;

/// The timeout for starting the Node.js process, which starts three small servers. It allows for a
/// busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// The address prefix of plugins from an earlier demo.
const THIS_MACHINE: &str = "http://127.0.0.1:";

/// The running servers. They end when this value is dropped or when the gateway exits for any
/// reason.
#[derive(Debug)]
pub(crate) struct Examples {
    _servers: (Supervisor, Sender),
    manifests: Vec<Url>,
    added: Vec<String>,
}

impl Examples {
    /// Starts the servers in `folder`. Returns the reason on failure.
    pub(crate) async fn start(folder: &Path) -> Result<Self, String> {
        let script = folder.join("demo.mjs");
        if !script.is_file() {
            return Err(format!("{} does not exist", script.display()));
        }
        let mut command = Command::new("node", [&script]);
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => "Node.js is not installed (apt install nodejs)".to_owned(),
            _ => format!("Node.js cannot be started: {error}"),
        };
        let (mut supervisor, Pipes { stdin, stdout, stderr }) =
            command.spawn_piped().map_err(failed)?;
        supervisor.started().await.map_err(|failure| failed(failure.into()))?;
        tokio::spawn(async move {
            let mut stderr = stderr;
            tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await
        });
        let servers = (supervisor, stdin);
        let manifests = tokio::time::timeout(START_TIMEOUT, manifests(stdout)).await;
        let see = format!("to see why, run `node {}`", script.display());
        match manifests {
            Ok(Ok(manifests)) => Ok(Self { _servers: servers, manifests, added: Vec::new() }),
            Ok(Err(why)) => Err(format!("{why}; {see}")),
            Err(_) => Err(format!(
                "the example servers took more than {} seconds to start; {see}",
                START_TIMEOUT.as_secs()
            )),
        }
    }

    /// Adds the plugins and returns their titles. A plugin that fails is logged and left out.
    pub(crate) async fn add_to(&mut self, plugins: &Plugins) -> Vec<String> {
        let mut titles = Vec::new();
        for url in self.manifests.clone() {
            match add(plugins, &url).await {
                Ok((identifier, title)) => {
                    titles.push(title);
                    self.added.push(identifier);
                }
                Err(error) => {
                    let error = error.to_string();
                    warn!(manifest = %url, error = %printable(&error), "an example plugin was not added");
                }
            }
        }
        titles
    }

    /// Removes the plugins, because their servers will have other addresses at the next start.
    pub(crate) async fn remove_from(&self, plugins: &Plugins) {
        for identifier in &self.added {
            // An operator may already have removed it.
            if let Err(error) = plugins.remove(identifier).await {
                tracing::debug!(%error, "cannot remove an example plugin");
            }
        }
    }
}

/// Adds a plugin. A plugin with the same identifier is only replaced if it is from an earlier demo.
async fn add(plugins: &Plugins, url: &Url) -> Result<(String, String), ChangeError> {
    // Each plugin may reach its own server on this machine, but no other private address.
    let allow_private = url
        .host_str()
        .zip(url.port())
        .map(|(host, port)| format!("{host}:{port}"))
        .into_iter()
        .collect();
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
    let manifest = manifest.ok_or_else(|| ChangeError::Invalid("the index is empty".into()))?;
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
        let url = line
            .strip_prefix("listening on ")
            .and_then(|url| Url::parse(url).ok()?.join("/manifest.json").ok());
        // The gateway will be allowed to call these URLs, so they must be on this machine.
        match url.filter(|url| url.as_str().starts_with(THIS_MACHINE)) {
            Some(url) => found.push(url),
            None => {
                return Err(format!(
                    "unexpected output of the example servers: \"{}\"",
                    printable(&line)
                ));
            }
        }
    }
    Err("the example servers exited before they were ready".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check_manifests(output: &str, expected: Result<&[&str], &str>) {
        let found = manifests(output.as_bytes()).await;
        match (found, expected) {
            (Ok(found), Ok(expected)) => {
                assert_eq!(found.iter().map(Url::as_str).collect::<Vec<_>>(), expected);
            }
            (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
            (found, _) => panic!("{output}: {found:?}"),
        }
    }

    #[tokio::test]
    async fn only_servers_on_this_machine_count() {
        let one = "listening on http://127.0.0.1:4000\n";
        check_manifests(&format!("{one}ready\n"), Ok(&["http://127.0.0.1:4000/manifest.json"]))
            .await;
        check_manifests(one, Err("exited before")).await;
        check_manifests("listening on http://10.0.0.1:80\nready\n", Err("10.0.0.1")).await;
        check_manifests("Error: no\nready\n", Err("Error: no")).await;
    }
}
