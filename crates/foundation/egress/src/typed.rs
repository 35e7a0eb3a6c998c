//! URLs that a person has typed.

use sa_text::mask;
use url::Url;

/// Parses an HTTP URL. The error suggests a missing scheme, unless the text may contain a secret.
pub fn http_url(text: &str) -> Result<Url, String> {
    let read = |text: &str| {
        let url = Url::parse(text).map_err(|error| format!("is not a valid URL: {error}"))?;
        let is_http = matches!(url.scheme(), "http" | "https") && url.host().is_some();
        if is_http { Ok(url) } else { Err("must begin with http:// or https://".to_owned()) }
    };
    let lacks_scheme = !text.contains("://") && text.len() <= 200 && mask::address(text) == text;
    read(text).map_err(|why| {
        let here = ["localhost", "127.", "[::1]"].iter().any(|host| text.starts_with(host));
        let whole = format!("{}://{text}", if here { "http" } else { "https" });
        match read(&whole) {
            Ok(_) if lacks_scheme => {
                format!("must begin with http:// or https://; write {whole:?}")
            }
            _ => why,
        }
    })
}
