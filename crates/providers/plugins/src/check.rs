//! Checks a manifest for its author.

use std::collections::BTreeSet;

use sa_egress::Allowed;
use sa_limits::offload;
use serde_json::Value;
use url::Url;

use crate::manifest::{self, Manifest, Problem, Severity};
use crate::registry::{Addition, ChangeError, Terms};
use crate::source::{FetchError, Validators};
use crate::{Plugins, openapi};

impl Plugins {
    /// Returns the problems of a manifest with their lines, and whether it could be added on
    /// these terms.
    pub async fn check(
        &self,
        addition: Addition,
        terms: &Terms,
    ) -> Result<(bool, Vec<Problem>), ChangeError> {
        let allowed = terms.allowed()?;
        let (text, base) = match addition {
            Addition::Url(url) => {
                let fetched = self
                    .fetch(&url, &allowed, &Validators::default(), openapi::MAX_DOCUMENT)
                    .await?;
                (fetched.ok_or(FetchError::Status(304))?.text, Some(url))
            }
            Addition::Text(text) => (text, None),
        };
        let reading = manifest::read(&text, base.as_ref());
        let mut problems = reading.problems;
        let Some(manifest) = &reading.manifest else {
            // The text may be an OpenAPI document without a manifest.
            let bytes = text.len();
            let document = offload::run_queued(bytes, || openapi::read(&text, base.as_ref())).await;
            return Ok(match document {
                Ok(document) => {
                    let servers = self.servers(&document, "/servers", &allowed);
                    let usable = !servers.iter().any(|problem| problem.severity == Severity::Error);
                    let mut problems = [servers, mentioned(&document, "")].concat();
                    manifest::place(&text, &mut problems);
                    (usable, problems)
                }
                Err(_) => (false, problems),
            });
        };
        problems.extend(self.unreachable(&text, manifest, &allowed));
        let mut usable = true;
        if let Some(url) = &manifest.openapi {
            let fetched =
                self.fetch(url, &allowed, &Validators::default(), openapi::MAX_DOCUMENT).await;
            let document = match fetched {
                Ok(fetched) => {
                    let text = fetched.map(|fetched| fetched.text).unwrap_or_default();
                    offload::run_queued(text.len(), || openapi::read(&text, Some(url))).await
                }
                Err(error) => Err(error.to_string()),
            };
            match document {
                Ok(document) => {
                    let servers = self.servers(&document, "/openapi", &allowed);
                    usable = !servers.iter().any(|problem| problem.severity == Severity::Error);
                    problems.extend(servers.into_iter().chain(mentioned(&document, "/openapi")));
                }
                Err(why) => {
                    usable = false;
                    let message = format!("the OpenAPI document cannot be used: {why}");
                    problems.push(problem(Severity::Error, "/openapi", message));
                }
            }
        }
        manifest::place(&text, &mut problems);
        Ok((usable, problems))
    }

    /// Reports a document without any callable server, and servers that cannot be called from
    /// this gateway.
    fn servers(
        &self,
        document: &sa_openapi::Document,
        path: &str,
        allowed: &Allowed,
    ) -> Vec<Problem> {
        let origins: BTreeSet<String> = document
            .operations()
            .iter()
            .flat_map(|operation| openapi::origins(document, operation))
            .collect();
        if origins.is_empty() {
            return vec![problem(Severity::Error, path, openapi::NO_SERVER.to_owned())];
        }
        let refused =
            |origin: &String| self.shared.egress.check(&Url::parse(origin).ok()?, allowed).err();
        let refused = origins.iter().filter_map(|origin| Some((origin, refused(origin)?)));
        refused
            .map(|(origin, error)| {
                problem(
                    Severity::Warning,
                    path,
                    format!("the gateway cannot call {origin}: {error}"),
                )
            })
            .collect()
    }

    /// Reports functions with addresses that cannot be called from this gateway.
    fn unreachable(&self, text: &str, manifest: &Manifest, allowed: &Allowed) -> Vec<Problem> {
        let refused = |url| self.shared.egress.check(url, allowed).err();
        let apis = manifest.apis.iter().filter_map(|api| Some((api, refused(api.url.as_ref()?)?)));
        apis.map(|(api, error)| {
            let at = serde_json::from_str::<Value>(text).ok().and_then(|value| {
                value
                    .get("api")?
                    .as_array()?
                    .iter()
                    .position(|entry| entry.get("name") == Some(&api.name.as_str().into()))
            });
            let path = format!("/api/{}/url", at.unwrap_or_default());
            problem(
                Severity::Warning,
                &path,
                format!("the gateway cannot call \"{}\": {error}", api.name),
            )
        })
        .collect()
    }
}

/// Returns the problems of an OpenAPI document. Within a manifest, all of them are reported where
/// the document is named.
fn mentioned(document: &sa_openapi::Document, at: &str) -> Vec<Problem> {
    let problems = document.problems().iter().map(|problem| {
        let path = if at.is_empty() { &problem.pointer } else { at };
        let message = if at.is_empty() { problem.message.clone() } else { problem.to_string() };
        self::problem(Severity::Warning, path, message)
    });
    problems.collect()
}

/// Returns a problem without its line, which is set later.
fn problem(severity: Severity, path: &str, message: String) -> Problem {
    Problem { severity, line: 1, path: path.to_owned(), message }
}
