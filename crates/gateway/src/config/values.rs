//! Checks settings, alone and in combination. Finds values that can be parsed but would never have
//! the intended effect. Each message contains a correction.

use std::net::Ipv6Addr;

use sa_http::connection::split_port;
use sa_text::mask::address;
use url::{Host, Url};

use super::bounds;
use super::settings::Settings;
use sa_text::printable;

/// Checks one entry. Returns the problem and a correction.
type Check = fn(&str) -> Result<(), String>;

/// Reports each value that cannot work, with its key.
pub(super) fn check(settings: &Settings, wrong: &mut impl FnMut(&str, String)) {
    for (key, message) in bounds::violations(settings) {
        wrong(key, message);
    }
    for (name, spec) in &settings.upstream {
        spec.check(name)
            .unwrap_or_else(|error| wrong(&within(&format!("upstream.{name}"), &error), error));
    }
    for (name, spec) in &settings.models {
        spec.check(name)
            .unwrap_or_else(|error| wrong(&within(&format!("models.{name}"), &error), error));
    }
    let sessions = &settings.sessions;
    if !sessions.default_agent.is_empty() && !sessions.agents.contains_key(&sessions.default_agent)
    {
        wrong(
            "sessions.default_agent",
            format!("there is no [sessions.agents.{}]", sessions.default_agent),
        );
    }
    for (name, agent) in &sessions.agents {
        agent.check().unwrap_or_else(|error| {
            wrong(&within(&format!("sessions.agents.{name}"), &error), error);
        });
    }
    let server = &settings.server;
    let plugins = &settings.plugins;
    let lists: [(&str, &[String], Check); 7] = [
        ("server.allowed_hosts", &server.allowed_hosts, check_host),
        ("server.allowed_origins", &server.allowed_origins, check_origin),
        ("plugins.allowed_origins", &plugins.allowed_origins, check_origin),
        ("plugins.allow_private", &plugins.allow_private, check_private),
        ("plugins.settings_headers", &plugins.settings_headers, sa_plugins::check_settings_header),
        ("policy.deny", &settings.policy.deny, check_pattern),
        ("skills.dirs", &settings.skills.dirs, check_dir),
    ];
    for (key, entries, check) in lists {
        for entry in entries {
            check(entry).unwrap_or_else(|error| wrong(key, error));
        }
    }
    if settings.nodes.dead_after_ms <= settings.nodes.ping_interval_ms {
        wrong("nodes.dead_after_ms", "must be more than nodes.ping_interval_ms".into());
    }
    let primary = &settings.nodes.primary;
    if !primary.is_empty() && sa_nodes::check_id(primary).is_err() {
        wrong(
            "nodes.primary",
            "must be the id of a node; run `switchboard nodes` to list the ids".into(),
        );
    }
    let bases = [
        ("server.public_url", &server.public_url, "https://gw.example.com"),
        ("telemetry.otlp_endpoint", &settings.telemetry.otlp_endpoint, "http://127.0.0.1:4318"),
    ];
    for (key, text, example) in bases.into_iter().filter(|(_, text, _)| !text.is_empty()) {
        check_base(text, example).unwrap_or_else(|error| wrong(key, error));
    }
    if let Some(base) =
        settings.telemetry.otlp_endpoint.trim_end_matches('/').strip_suffix("/v1/traces")
    {
        wrong(
            "telemetry.otlp_endpoint",
            format!(
                "must not end with /v1/traces, which is added to it; {}",
                write(&address(base))
            ),
        );
    }
    if settings.telemetry.service_name.trim().is_empty() {
        wrong(
            "telemetry.service_name",
            "must not be empty; write a name such as \"switchboard\"".into(),
        );
    }
    crate::telemetry::check_filter(&settings.log.filter)
        .unwrap_or_else(|error| wrong("log.filter", error));
}

/// Returns the key within a named table that the message starts with. If there is none, returns the
/// table.
fn within(table: &str, words: &str) -> String {
    let first = words.split([' ', ':', '.']).next().unwrap_or_default();
    let known = |(key, _, _): &&(&str, &str, &str)| {
        let (above, field) = key.rsplit_once('.').unwrap_or_default();
        field == first && above.strip_suffix("NAME").is_some_and(|above| table.starts_with(above))
    };
    if super::named::NAMED_KEYS.iter().any(|key| known(&key)) {
        format!("{table}.{first}")
    } else {
        table.to_owned()
    }
}

/// Returns an address for display, without secrets.
fn shown(text: &str) -> String {
    printable(&address(text)).into_owned()
}

fn write(instead: &str) -> String {
    format!("write \"{}\"", printable(instead))
}

/// Checks an allowed host. It is compared literally with the `Host` header, so it must have the
/// form that clients send.
fn check_host(entry: &str) -> Result<(), String> {
    if as_host(entry).is_some_and(|host| host == entry.to_ascii_lowercase()) {
        return Ok(());
    }
    let shown = shown(entry);
    if entry.contains('*') {
        return Err(format!(
            "\"{shown}\": wildcards (*) are not supported; write each name by itself"
        ));
    }
    let bare = entry.trim();
    let bare = bare.split_once("://").map_or(bare, |(_, rest)| rest);
    let bare = bare.split(['/', '?', '#']).next().unwrap_or_default();
    let bare = if bare.parse::<Ipv6Addr>().is_ok() { format!("[{bare}]") } else { bare.to_owned() };
    let instead = as_host(&bare).map_or_else(
        || "write a name, or a name and a port, such as \"gw.example.com\" or \"gw.example.com:8443\"".to_owned(),
        |host| write(&host),
    );
    Err(format!("\"{shown}\" is not a host in the form that clients send; {instead}"))
}

/// Returns the host in the form that clients send, if the text is a valid host.
fn as_host(text: &str) -> Option<String> {
    let (host, port) = split_port(text);
    let host = Host::parse(host).ok().filter(|_| !host.contains('*'))?;
    let Some(port) = port else { return Some(host.to_string()) };
    // `u16::from_str` also accepts a leading plus sign.
    let port: u16 = port.parse().ok().filter(|number| *number > 0 && !port.starts_with('+'))?;
    Some(format!("{host}:{port}"))
}

/// Checks an allowed origin. It is compared literally with the `Origin` header.
fn check_origin(entry: &str) -> Result<(), String> {
    let shown = shown(entry);
    if entry.contains('*') {
        return Err(format!(
            "\"{shown}\": wildcards (*) are not supported; write each origin by itself"
        ));
    }
    if as_origin(entry).is_some_and(|origin| origin == entry.to_ascii_lowercase()) {
        return Ok(());
    }
    let bare = entry.trim();
    let with_scheme = || {
        as_host(bare.split('/').next().unwrap_or_default()).map(|host| format!("https://{host}"))
    };
    let instead = match as_origin(bare).or_else(with_scheme).filter(|_| !bare.eq_ignore_ascii_case("null")) {
        Some(origin) => write(&origin),
        None => "write a scheme, a host and, if it is not the default, a port, such as \"https://app.example.com\""
            .to_owned(),
    };
    Err(format!("\"{shown}\" is not an origin in the form that browsers send; {instead}"))
}

/// Returns the origin of a page at this address. Schemes other than HTTP are allowed, because
/// browser extensions use their own.
fn as_origin(address: &str) -> Option<String> {
    let url = Url::parse(address).ok()?;
    let host = url.host_str().filter(|host| !host.is_empty())?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{}://{host}{port}", url.scheme()))
}

/// Checks a base URL, to which a path can be appended.
fn check_base(text: &str, example: &str) -> Result<(), String> {
    let is_base = |text: &str| {
        Url::parse(text).is_ok_and(|url| {
            let plain =
                url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
            matches!(url.scheme(), "http" | "https")
                && url.has_host()
                && plain
                && url.password().is_none()
        })
    };
    if is_base(text) && text.contains("://") && text.trim() == text {
        return Ok(());
    }
    let scheme = example.split("//").next().unwrap_or_default();
    let bare = text.trim();
    let bare = if bare.contains("://") { bare.to_owned() } else { format!("{scheme}//{bare}") };
    let instead = if is_base(&bare) && address(text) == text { &bare } else { example };
    Err(format!(
        "\"{}\" must be an address that begins with http:// or https://, without a password, a ? or a #; {}",
        shown(text),
        write(instead)
    ))
}

/// Checks a deny pattern. A pattern that cannot match any name would silently deny nothing.
fn check_pattern(pattern: &str) -> Result<(), String> {
    if !pattern.is_empty() && pattern.trim() == pattern && !pattern.contains(char::is_control) {
        return Ok(());
    }
    let instead = match pattern.trim() {
        trimmed if !trimmed.is_empty() && !trimmed.contains(char::is_control) => write(trimmed),
        _ => "write a name or a pattern, such as \"*__Bash\"".to_owned(),
    };
    Err(format!("\"{}\" cannot match the name of a tool; {instead}", printable(pattern)))
}

fn check_private(entry: &str) -> Result<(), String> {
    sa_plugins::check_private(entry).map_err(|told| told.replace(entry, &address(entry)))
}

fn check_dir(dir: &str) -> Result<(), String> {
    if dir.trim().is_empty() {
        Err("\"\" is not a directory; leave it out, or write its path".to_owned())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_entry(check: Check, entry: &str, instead: Option<&str>) {
        match (check(entry), instead) {
            (Ok(()), None) => {}
            (Err(told), Some(instead)) => assert!(told.ends_with(instead), "{entry}: {told}"),
            (result, _) => panic!("{entry}: {result:?}"),
        }
    }

    #[test]
    fn hosts_are_written_as_clients_name_them() {
        let right = [
            "gw.example.com",
            "GW.example.com",
            "gw:8443",
            "localhost",
            "10.0.0.5",
            "[::1]:3210",
            "[::1]",
            "a_b",
        ];
        for entry in right {
            check_entry(check_host, entry, None);
        }
        for (entry, instead) in [
            ("https://gw.example.com", "write \"gw.example.com\""),
            ("http://gw.example.com:8443/path?x", "write \"gw.example.com:8443\""),
            ("gw.example.com/", "write \"gw.example.com\""),
            (" gw.example.com", "write \"gw.example.com\""),
            ("::1", "write \"[::1]\""),
            ("bücher.example", "write \"xn--bcher-kva.example\""),
            ("127.1", "write \"127.0.0.1\""),
            ("*.example.com", "write each name by itself"),
            ("*", "write each name by itself"),
            ("gw example", "\"gw.example.com:8443\""),
            ("gw:", "\"gw.example.com:8443\""),
            ("gw:0", "\"gw.example.com:8443\""),
            ("gw:+80", "\"gw.example.com:8443\""),
            ("gw:99999", "\"gw.example.com:8443\""),
            ("user@gw", "\"gw.example.com:8443\""),
            ("", "\"gw.example.com:8443\""),
        ] {
            check_entry(check_host, entry, Some(instead));
        }
    }

    #[test]
    fn origins_are_written_as_browsers_send_them() {
        let right = [
            "https://app.example.com",
            "HTTPS://App.example.com",
            "http://127.0.0.1:5173",
            "http://[::1]:5173",
            "chrome-extension://abcdefghijklmnop",
            "tauri://localhost",
        ];
        for entry in right {
            check_entry(check_origin, entry, None);
        }
        for (entry, instead) in [
            ("app.example.com", "write \"https://app.example.com\""),
            ("app.example.com/x", "write \"https://app.example.com\""),
            ("https://app.example.com/", "write \"https://app.example.com\""),
            ("https://app.example.com/path", "write \"https://app.example.com\""),
            ("https://app.example.com:443", "write \"https://app.example.com\""),
            ("https://user@app.example.com", "write \"https://app.example.com\""),
            (" https://app.example.com", "write \"https://app.example.com\""),
            ("https://bücher.example", "write \"https://xn--bcher-kva.example\""),
            ("tauri://localhost/", "write \"tauri://localhost\""),
            ("https://*.example.com", "write each origin by itself"),
            ("*", "write each origin by itself"),
            ("null", "such as \"https://app.example.com\""),
            ("file:///home/me/page.html", "such as \"https://app.example.com\""),
            ("https://a b", "such as \"https://app.example.com\""),
            ("", "such as \"https://app.example.com\""),
        ] {
            check_entry(check_origin, entry, Some(instead));
        }
    }

    #[test]
    fn addresses_have_a_scheme_and_nothing_behind_their_path() {
        let check = |text: &str, instead: Option<&str>| match (
            check_base(text, "http://127.0.0.1:4318"),
            instead,
        ) {
            (Ok(()), None) => {}
            (Err(told), Some(instead)) => {
                assert!(told.ends_with(&format!("write \"{instead}\"")), "{text}: {told}");
            }
            (result, _) => panic!("{text}: {result:?}"),
        };
        check("http://localhost:4318", None);
        check("https://collector.example.com/otlp/", None);
        check("localhost:4318", Some("http://localhost:4318"));
        check("collector.example.com", Some("http://collector.example.com"));
        check("grpc://localhost:4317", Some("http://127.0.0.1:4318"));
        check("http://", Some("http://127.0.0.1:4318"));
        check("http://a?x=1", Some("http://127.0.0.1:4318"));
        check("http://me:secret@a", Some("http://127.0.0.1:4318"));
        check("http://localhost:4318 ", Some("http://localhost:4318"));
        check("http:localhost:4318", Some("http://127.0.0.1:4318"));
    }

    #[test]
    fn a_rule_that_no_name_matches_is_none() {
        for right in ["Bash", "*", "*__Bash", "macos.notes.*", "a tool"] {
            check_entry(check_pattern, right, None);
        }
        check_entry(check_pattern, " Bash", Some("write \"Bash\""));
        check_entry(check_pattern, "", Some("such as \"*__Bash\""));
        check_entry(check_pattern, "a\u{7}", Some("such as \"*__Bash\""));
    }

    #[test]
    fn words_about_a_table_lead_to_its_key() {
        assert_eq!(within("upstream.web", "url must begin with http://"), "upstream.web.url");
        assert_eq!(within("upstream.web", "headers: \"x\" cannot be set"), "upstream.web.headers");
        assert_eq!(within("upstream.web", "oauth.issuer must be"), "upstream.web.oauth");
        assert_eq!(within("upstream.web", "needs a command or a url"), "upstream.web");
        assert_eq!(
            within("models.gpt-5.1", "max_rounds must be from 1"),
            "models.gpt-5.1.max_rounds"
        );
        assert_eq!(
            within("sessions.agents.bot", "command must begin"),
            "sessions.agents.bot.command"
        );
    }
}
