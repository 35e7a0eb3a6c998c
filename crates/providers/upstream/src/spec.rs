//! The specification of an upstream server: how to connect to it, and its limits.

use std::collections::BTreeMap;
use std::env::VarError;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use sa_egress::http_url;
use sa_text::mask::{self, MASK};
use sa_vault::bounded;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// The maximum length of a name, so that `{server}__{tool}` has space for the tool.
const MAX_NAME: usize = 32;
/// The maximum number of arguments, variables and headers, and the maximum length of each.
const MAX_ITEMS: usize = 128;
const MAX_ITEM: usize = 8_192;
const LONGEST: u64 = 24 * 3_600_000;
/// Headers that the protocol itself uses.
const RESERVED: [&str; 8] = [
    "accept",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];

/// One upstream server, as in the configuration file and the API.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spec {
    /// The program and its arguments: a server that is connected over its stdin and stdout.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Additional environment variables for the program. A value may be a reference, like
    /// `bearer`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The working directory of the program.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cwd: String,
    /// The URL of a server that is connected over Streamable HTTP.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// A reference to the bearer token: `env:NAME` or `file:PATH`. The token itself is never
    /// written here.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bearer: String,
    /// Additional headers for each request. A value may be a reference, like `bearer`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// How to get a token from the server's OAuth authorization server, if it requires one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oauth: Option<OAuth>,
    pub enabled: bool,
    /// The default time limit of its tools' calls, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The maximum number of concurrent calls.
    pub max_running: usize,
    /// Whether each caller gets its own connection. By default, that is so for a URL, and not for
    /// a command, which would need a process for each caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolate: Option<bool>,
}

/// How the gateway gets tokens from the server's OAuth authorization server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OAuth {
    pub grant: Grant,
    /// The gateway's client id at the authorization server. It is optional for a login: the
    /// gateway then registers itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_id: String,
    /// A reference to the client secret, like `bearer`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_secret: String,
    /// The https URL of a document with the gateway's client metadata, for authorization servers
    /// that accept one as a `client_id`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_metadata_url: String,
    /// The issuer of the authorization server that these settings are for. By default, the one
    /// that the server names.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub issuer: String,
    /// The scopes to request. By default, a login requests the scopes that the server requires.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}

/// The OAuth grant type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grant {
    /// Tokens for the gateway itself, which has an account at the authorization server.
    #[default]
    ClientCredentials,
    /// Tokens for a user, after a login with a browser.
    AuthorizationCode,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            env: BTreeMap::new(),
            cwd: String::new(),
            url: String::new(),
            bearer: String::new(),
            headers: BTreeMap::new(),
            oauth: None,
            enabled: true,
            timeout_ms: None,
            max_running: 50,
            isolate: None,
        }
    }
}

impl Spec {
    /// Returns an error if the specification is invalid.
    pub fn check(&self, name: &str) -> Result<(), String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty()
            || name.len() > MAX_NAME
            || !name.chars().all(plain)
            || name.contains("__")
        {
            return Err(format!(
                "the name must have 1 to {MAX_NAME} letters, digits, - or _, without two consecutive _: it is the first \
                 part of its tools' names"
            ));
        }
        match (self.command.is_empty(), self.url.is_empty()) {
            (true, true) => return Err("needs a command or a url".into()),
            (false, false) => return Err("has a command and a url; it can have only one".into()),
            (false, true)
                if !self.bearer.is_empty() || !self.headers.is_empty() || self.oauth.is_some() =>
            {
                return Err(
                    "bearer, headers and oauth are only for a url; use env for the secrets of a command"
                        .into(),
                );
            }
            (true, false) if !self.env.is_empty() || !self.cwd.is_empty() => {
                return Err("env and cwd are only for a command".into());
            }
            (true, false) => self.check_url()?,
            (false, true) if self.command[0].is_empty() => {
                return Err("the command's first word is empty".into());
            }
            (false, true) => {}
        }
        let texts = self.command.iter().chain(self.env.keys()).chain(self.env.values());
        let mut texts = texts
            .chain(self.headers.keys())
            .chain(self.headers.values())
            .chain([&self.cwd, &self.bearer]);
        if texts.any(|text| text.len() > MAX_ITEM || text.contains('\0')) {
            return Err(format!(
                "a value is longer than {MAX_ITEM} bytes or contains a null character"
            ));
        }
        if self.command.len() > MAX_ITEMS
            || self.env.len() > MAX_ITEMS
            || self.headers.len() > MAX_ITEMS
        {
            return Err(format!(
                "command, env and headers can have at most {MAX_ITEMS} items each"
            ));
        }
        if let Some(name) = self.env.keys().find(|name| name.is_empty() || name.contains('=')) {
            return Err(format!("env: \"{}\" is not a valid variable name", mask::name(name)));
        }
        if self.max_running == 0 || self.max_running > 10_000 {
            return Err("max_running must be from 1 to 10000".into());
        }
        if self.timeout_ms.is_some_and(|limit| limit == 0 || limit > LONGEST) {
            return Err(format!("timeout_ms must be from 1 to {LONGEST}"));
        }
        Ok(())
    }

    fn check_url(&self) -> Result<(), String> {
        let url = http_url(&self.url).map_err(|why| format!("url {why}"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("url must not contain a password: use bearer or headers".into());
        }
        if !self.bearer.is_empty() && !is_reference(&self.bearer) {
            return Err("bearer must be a reference to the token: env:NAME or file:PATH".into());
        }
        if let Some(oauth) = &self.oauth {
            if !self.bearer.is_empty() {
                return Err("has bearer and oauth; it can have only one".into());
            }
            oauth.check()?;
            let texts =
                [&oauth.client_id, &oauth.client_secret, &oauth.client_metadata_url, &oauth.issuer];
            let lengths = texts.into_iter().chain(&oauth.scopes).map(String::len);
            if oauth.scopes.len() > MAX_ITEMS || lengths.max() > Some(MAX_ITEM) {
                return Err(format!(
                    "oauth: at most {MAX_ITEMS} scopes, and {MAX_ITEM} bytes each"
                ));
            }
        }
        for name in self.headers.keys() {
            let lower = name.to_lowercase();
            if reqwest::header::HeaderName::try_from(name).is_err() || RESERVED.contains(&&*lower) {
                return Err(format!("headers: \"{}\" cannot be set", mask::name(name)));
            }
        }
        Ok(())
    }

    /// Returns a copy without possible secrets. References are kept, because they only name the
    /// location of a secret.
    #[must_use]
    pub fn masked(&self) -> Self {
        let masked = |values: &BTreeMap<String, String>| {
            let show =
                |value: &String| if is_reference(value) { value.clone() } else { MASK.into() };
            values.iter().map(|(name, value)| (name.clone(), show(value))).collect()
        };
        Self {
            command: self.command.iter().map(|word| mask::addresses(word).into_owned()).collect(),
            env: masked(&self.env),
            url: mask::address(&self.url).into_owned(),
            headers: masked(&self.headers),
            ..self.clone()
        }
    }

    /// Returns whether the server supports a login: no other source of tokens is configured.
    pub(crate) fn takes_login(&self) -> bool {
        match &self.oauth {
            Some(oauth) => oauth.grant == Grant::AuthorizationCode,
            None => !self.url.is_empty() && self.bearer.is_empty() && self.headers.is_empty(),
        }
    }

    pub(crate) fn isolates(&self) -> bool {
        self.isolate.unwrap_or(!self.url.is_empty())
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout_ms.map(Duration::from_millis)
    }

    /// Identifies the server, so that its cached lists are not used for another server with the
    /// same name.
    pub(crate) fn fingerprint(&self) -> String {
        let way = (&self.command, &self.env, &self.cwd, &self.url, &self.headers);
        blake3::hash(serde_json::to_string(&way).unwrap_or_default().as_bytes())
            .to_hex()
            .to_string()
    }
}

impl OAuth {
    fn check(&self) -> Result<(), String> {
        let secret = "client_secret must be a reference to the secret: env:NAME or file:PATH";
        let is_address =
            |url: url::Url| matches!(url.scheme(), "http" | "https") && url.query().is_none();
        if !self.issuer.is_empty() && !url::Url::parse(&self.issuer).is_ok_and(is_address) {
            return Err("oauth.issuer must be the URL of the authority, such as \"https://auth.example.com\"".into());
        }
        match self.grant {
            Grant::ClientCredentials
                if self.client_id.is_empty() || !is_reference(&self.client_secret) =>
            {
                Err(format!(
                    "oauth needs a client_id, and its {secret}; or set grant = \"authorization_code\" to let a user log in"
                ))
            }
            Grant::ClientCredentials if !self.client_metadata_url.is_empty() => {
                Err("oauth.client_metadata_url is only for grant = \"authorization_code\"".into())
            }
            Grant::AuthorizationCode
                if !self.client_secret.is_empty() && self.client_id.is_empty() =>
            {
                Err("oauth has a client_secret but no client_id".into())
            }
            Grant::AuthorizationCode
                if !self.client_secret.is_empty() && !is_reference(&self.client_secret) =>
            {
                Err(format!("oauth.{secret}"))
            }
            Grant::AuthorizationCode
                if !self.client_metadata_url.is_empty()
                    && !is_document(&self.client_metadata_url) =>
            {
                Err("oauth.client_metadata_url must begin with https:// and have a path".into())
            }
            _ => Ok(()),
        }
    }
}

/// Returns whether an authorization server could accept this URL as a client id.
fn is_document(address: &str) -> bool {
    url::Url::parse(address).is_ok_and(|url| url.scheme() == "https" && url.path() != "/")
}

impl Spec {
    /// The files that hold its secrets.
    pub fn secret_files(&self) -> impl Iterator<Item = &Path> {
        let client_secret = self.oauth.iter().map(|oauth| &oauth.client_secret);
        self.env
            .values()
            .chain(self.headers.values())
            .chain([&self.bearer])
            .chain(client_secret)
            .filter_map(|value| value.strip_prefix("file:"))
            .map(Path::new)
    }
}

fn is_reference(value: &str) -> bool {
    value.starts_with("env:") || value.starts_with("file:")
}

/// Returns the value of a reference; any other text is the value itself. It is read for each
/// connection, so that a replaced token file takes effect.
pub(crate) fn resolve(value: &str) -> Result<SecretString, String> {
    let text = if let Some(name) = value.strip_prefix("env:") {
        std::env::var(name).map_err(|error| match error {
            VarError::NotPresent => format!("the environment variable {name} is not set"),
            VarError::NotUnicode(_) => {
                format!("the environment variable {name} is not valid UTF-8")
            }
        })?
    } else if let Some(path) = value.strip_prefix("file:") {
        let text = bounded::text_of_file(Path::new(path), bounded::TOKEN)
            .map_err(|error| format!("{path}: {error}"))?;
        text.trim().to_owned()
    } else {
        value.to_owned()
    };
    if text.len() > MAX_ITEM || text.contains(['\0', '\n', '\r']) {
        return Err("a secret is too long or contains a line break".into());
    }
    Ok(text.into())
}

/// Prints the masked specification.
impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let printed = serde_json::to_string(&self.masked()).map_err(|_| fmt::Error)?;
        write!(f, "Spec({printed})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_contains_no_secret() {
        let secrets = || BTreeMap::from([("NAME".to_owned(), "canary".to_owned())]);
        let spec = Spec {
            env: secrets(),
            headers: secrets(),
            ..url("https://user:canary@host/path?key=canary")
        };
        let printed = format!("{spec:?}");
        assert!(printed.contains("host/path") && !printed.contains("canary"), "{printed}");
    }

    fn command() -> Spec {
        Spec { command: vec!["server".into()], ..Spec::default() }
    }

    fn url(url: &str) -> Spec {
        Spec { url: url.into(), ..Spec::default() }
    }

    #[track_caller]
    fn check(name: &str, spec: Spec, expected: &str) {
        match spec.check(name) {
            Ok(()) => assert_eq!(expected, "", "{spec:?} was accepted"),
            Err(error) => assert!(!expected.is_empty() && error.contains(expected), "{error}"),
        }
    }

    #[test]
    fn a_server_has_a_name_and_one_address() {
        check("files", command(), "");
        check("web", url("https://example.com/mcp"), "");
        for name in ["", "a b", "a__b", "a.b", &"a".repeat(33)] {
            check(name, command(), "name");
        }
        check("files", Spec::default(), "needs a command or a url");
        check("files", Spec { url: "http://a/".into(), ..command() }, "only one");
        check("files", url("ftp://example.com"), "http");
        check("web", url("example.com/mcp"), "write \"https://example.com/mcp\"");
        check("web", url("localhost:3000/mcp"), "write \"http://localhost:3000/mcp\"");
        check("files", url("https://me:secret@example.com/"), "password");
        check("files", Spec { bearer: "sb_x".into(), ..url("http://a/") }, "env:NAME");
        check("files", Spec { bearer: "env:X".into(), ..command() }, "for a url");
        let oauth = |secret: &str| {
            Some(OAuth { client_id: "me".into(), client_secret: secret.into(), ..OAuth::default() })
        };
        let login = OAuth { grant: Grant::AuthorizationCode, ..OAuth::default() };
        check("web", Spec { oauth: Some(login.clone()), ..url("http://a/") }, "");
        check(
            "web",
            Spec { oauth: Some(OAuth::default()), ..url("http://a/") },
            "authorization_code",
        );
        let lone = OAuth { client_secret: "env:X".into(), ..login.clone() };
        check("web", Spec { oauth: Some(lone), ..url("http://a/") }, "no client_id");
        let clear =
            OAuth { client_id: "me".into(), client_secret: "in clear".into(), ..login.clone() };
        check("web", Spec { oauth: Some(clear), ..url("http://a/") }, "env:NAME");
        for document in ["http://me/client.json", "https://me", "https://me/", "https:", "me"] {
            let document = OAuth { client_metadata_url: document.into(), ..login.clone() };
            check("web", Spec { oauth: Some(document), ..url("http://a/") }, "https://");
        }
        for (issuer, wrong) in [
            ("https://auth.example.com/tenant", ""),
            ("auth.example.com", "issuer"),
            ("file:///", "issuer"),
        ] {
            let issuer = OAuth { issuer: issuer.into(), ..login.clone() };
            check("web", Spec { oauth: Some(issuer), ..url("http://a/") }, wrong);
        }
        check("web", Spec { oauth: oauth("file:/x"), ..url("http://a/") }, "");
        check("web", Spec { oauth: oauth("in clear"), ..url("http://a/") }, "client_secret");
        check(
            "web",
            Spec { oauth: oauth("env:X"), bearer: "env:Y".into(), ..url("http://a/") },
            "only one",
        );
        check("files", Spec { max_running: 0, ..command() }, "max_running");
        check("files", Spec { timeout_ms: Some(0), ..command() }, "timeout_ms");
        let header = |name: &str| [(name.to_owned(), "x".to_owned())].into();
        check("web", Spec { headers: header("X-Key"), ..url("http://a/") }, "");
        check(
            "web",
            Spec { headers: header("Mcp-Session-Id"), ..url("http://a/") },
            "cannot be set",
        );
    }

    #[test]
    fn possible_secrets_are_masked() {
        let spec = Spec {
            env: [("A".into(), "canary".into()), ("B".into(), "env:TOKEN".into())].into(),
            ..command()
        };
        let printed = serde_json::to_string(&spec.masked()).unwrap();
        assert!(!printed.contains("canary") && printed.contains("env:TOKEN"), "{printed}");
        let program = ["server", "--db=postgres://me:canary@db/x"].map(str::to_owned).to_vec();
        for spec in
            [url("https://example.com/mcp?key=canary"), Spec { command: program, ..command() }]
        {
            let printed = serde_json::to_string(&spec.masked()).unwrap();
            assert!(!printed.contains("canary") && printed.contains(MASK), "{printed}");
        }
        let misplaced = |text: &str| [(text.to_owned(), String::new())].into();
        for spec in [
            Spec { env: misplaced("KEY=canary"), ..command() },
            Spec {
                headers: misplaced("Authorization: Bearer canary"),
                ..url("https://example.com/")
            },
            url("example.com/mcp?key=canary"),
            url("me:canary@example.com/mcp"),
        ] {
            let error = spec.check("x").unwrap_err();
            assert!(!error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn references_are_followed_and_their_mistakes_named() {
        use secrecy::ExposeSecret as _;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "abc\n").unwrap();
        assert_eq!(resolve(&format!("file:{}", file.display())).unwrap().expose_secret(), "abc");
        assert_eq!(resolve("plain").unwrap().expose_secret(), "plain");
        assert!(
            resolve("env:NO_SUCH_VARIABLE_HERE").unwrap_err().contains("NO_SUCH_VARIABLE_HERE")
        );
        for none in ["file:/no/such/file", "file:/dev/zero", "file:/"] {
            assert!(resolve(none).unwrap_err().starts_with(&none["file:".len()..]), "{none}");
        }
    }

    proptest::proptest! {
        #[test]
        fn an_accepted_spec_follows_the_rules(
            text in sa_hostile::nearly(serde_json::json!({
                "url": "https://example.com/mcp", "headers": { "X-Key": "env:X" }, "max_running": 5, "timeout_ms": 5,
                "oauth": { "grant": "authorization_code", "scopes": ["a"], "issuer": "https://a.example" },
            })), name in sa_hostile::text(&["a", "_", "-", "."]),
        ) {
            let Ok(spec) = serde_json::from_str::<Spec>(&text) else { return Ok(()) };
            match spec.check(&name) {
                Ok(()) => {
                    proptest::prop_assert!(sa_core::naming::is_exposable(&name) && !name.contains("__"));
                    proptest::prop_assert!(spec.command.is_empty() != spec.url.is_empty());
                    let again: Spec = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
                    proptest::prop_assert_eq!(again.fingerprint(), spec.fingerprint(), "as it is stored");
                }
                Err(why) => proptest::prop_assert!(why.len() < 3 * sa_hostile::SHORT, "{} bytes", why.len()),
            }
        }
    }
}
