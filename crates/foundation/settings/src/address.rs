//! Checks addresses: hosts, origins and base URLs. Each message contains a correction.

use std::net::Ipv6Addr;

use sa_text::mask::address;
use sa_text::{printable, split_port};
use url::{Host, Url};

/// Checks an allowed host. It is compared literally with the `Host` header, so it must have the
/// form that clients send.
pub fn check_host(entry: &str) -> Result<(), String> {
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
pub fn check_origin(entry: &str) -> Result<(), String> {
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
pub fn check_base(text: &str, example: &str) -> Result<(), String> {
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

/// Returns an address for display, without secrets.
fn shown(text: &str) -> String {
    printable(&address(text)).into_owned()
}

/// Returns the correction of a value.
pub fn write(instead: &str) -> String {
    format!("write \"{}\"", printable(instead))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Check = fn(&str) -> Result<(), String>;

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
}
