//! What is wrong with a manifest, for its author.

use std::collections::BTreeSet;

use sa_egress::Allowed;
use serde_json::Value;
use url::Url;

use crate::manifest::{self, Manifest, Problem, Severity};
use crate::registry::{Addition, ChangeError, Terms};
use crate::source::{FetchError, Validators};
use crate::{Plugins, openapi, places};

impl Plugins {
    /// What is wrong with a manifest, line by line, and whether it could be added on these terms.
    pub async fn check(&self, addition: Addition, terms: &Terms) -> Result<(bool, Vec<Problem>), ChangeError> {
        let allowed = terms.allowed()?;
        let (text, base) = match addition {
            Addition::Url(url) => {
                let fetched = self.fetch(&url, &allowed, &Validators::default(), openapi::MAX_DOCUMENT).await?;
                (fetched.ok_or(FetchError::Status(304))?.text, Some(url))
            }
            Addition::Text(text) => (text, None),
        };
        let reading = manifest::read(&text, base.as_ref());
        let mut problems = reading.problems;
        let Some(manifest) = &reading.manifest else {
            // Perhaps it is an OpenAPI document, without a manifest.
            return Ok(match openapi::read(&text, base.as_ref()) {
                Ok(document) => {
                    let lines = places::lines_of_json(&text);
                    let servers = self.servers(&document, &lines, "/servers", &allowed);
                    let usable = !servers.iter().any(|problem| problem.severity == Severity::Error);
                    (usable, [servers, mentioned(&document, &lines, "")].concat())
                }
                Err(_) => (false, problems),
            });
        };
        let lines = places::lines(&text);
        problems.extend(self.unreachable(&text, manifest, &lines, &allowed));
        let mut usable = true;
        if let Some(url) = &manifest.openapi {
            let fetched = self.fetch(url, &allowed, &Validators::default(), openapi::MAX_DOCUMENT).await;
            let document = fetched.map_err(|error| error.to_string()).and_then(|fetched| {
                let text = fetched.map(|fetched| fetched.text).unwrap_or_default();
                openapi::read(&text, Some(url))
            });
            match document {
                Ok(document) => {
                    let servers = self.servers(&document, &lines, "/openapi", &allowed);
                    usable = !servers.iter().any(|problem| problem.severity == Severity::Error);
                    problems.extend(servers.into_iter().chain(mentioned(&document, &lines, "/openapi")));
                }
                Err(why) => {
                    usable = false;
                    let (path, message) =
                        ("/openapi".to_owned(), format!("the OpenAPI document cannot be used: {why}"));
                    let line = places::line_of(&lines, &path);
                    problems.push(Problem { severity: Severity::Error, line, path, message });
                }
            }
        }
        problems.sort_by_key(|problem| problem.line);
        Ok((usable, problems))
    }

    /// A document without a server that could be called, and servers that could never be called from here.
    fn servers(
        &self,
        document: &sa_openapi::Document,
        lines: &places::Lines,
        path: &str,
        allowed: &Allowed,
    ) -> Vec<Problem> {
        let origins: BTreeSet<String> =
            document.operations().iter().flat_map(|operation| openapi::origins(document, operation)).collect();
        let problem = |severity, message| {
            let (line, path) = (places::line_of(lines, path), path.to_owned());
            Problem { severity, line, path, message }
        };
        if origins.is_empty() {
            return vec![problem(Severity::Error, openapi::NO_SERVER.to_owned())];
        }
        let refused = |origin: &String| self.shared.egress.check(&Url::parse(origin).ok()?, allowed).err();
        let refused = origins.iter().filter_map(|origin| Some((origin, refused(origin)?)));
        refused
            .map(|(origin, error)| problem(Severity::Warning, format!("{origin} cannot be called from here: {error}")))
            .collect()
    }

    /// Functions at addresses that could never be called from here.
    fn unreachable(&self, text: &str, manifest: &Manifest, lines: &places::Lines, allowed: &Allowed) -> Vec<Problem> {
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
            let line = places::line_of(lines, &path);
            let message = format!("\"{}\" cannot be called from here: {error}", api.name);
            Problem { severity: Severity::Warning, line, path, message }
        })
        .collect()
    }
}

/// What a document's author should know. Within a manifest all of it stands where the document is named.
fn mentioned(document: &sa_openapi::Document, lines: &places::Lines, at: &str) -> Vec<Problem> {
    let problems = document.problems().iter().map(|problem| {
        let path = if at.is_empty() { problem.pointer.clone() } else { at.to_owned() };
        let message = if at.is_empty() { problem.message.clone() } else { problem.to_string() };
        Problem { severity: Severity::Warning, line: places::line_of(lines, &path), path, message }
    });
    let mut problems: Vec<Problem> = problems.collect();
    problems.sort_by_key(|problem| problem.line);
    problems
}
