//! Reads query parameters of WebSocket requests. Clients do not always encode them like forms.

use axum::http::Uri;
use percent_encoding::percent_decode_str;

use crate::Problem;

/// Returns the raw value of a parameter.
///
/// Duplicates are an error, because two programs on the way may disagree about which of them
/// counts.
pub fn only<'a>(uri: &'a Uri, name: &str) -> Result<Option<&'a str>, Problem> {
    let pairs = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut values =
        pairs.filter(|(key, _)| percent_decode_str(key).eq(name.bytes())).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => {
            Err(Problem::bad_request(format!("the URL has more than one \"{name}\" parameter")))
        }
    }
}

/// Returns the decoded value of a parameter.
///
/// A plus is kept as a plus. Form encoding was never part of these protocols, and base64 tokens
/// contain pluses.
pub fn decoded<'a>(uri: &'a Uri, name: &str) -> Result<Option<std::borrow::Cow<'a, str>>, Problem> {
    let Some(raw) = only(uri, name)? else { return Ok(None) };
    let unreadable =
        |_| Problem::bad_request(format!("the URL parameter \"{name}\" is not UTF-8 text"));
    percent_decode_str(raw).decode_utf8().map(Some).map_err(unreadable)
}

/// Returns the channel whose tools a request includes in addition to the tools of everyone.
pub fn channel(uri: &Uri) -> Result<Option<String>, Problem> {
    Ok(decoded(uri, "channel")?.map(std::borrow::Cow::into_owned))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the single value of `token` in a query, or the status of the error.
    fn token(query: &str) -> Result<Option<String>, u16> {
        let uri: Uri = format!("/v1/nodes/ws?{query}").parse().unwrap();
        only(&uri, "token")
            .map(|value| value.map(str::to_owned))
            .map_err(|problem| problem.status())
    }

    #[test]
    fn one_value_or_none_or_a_problem() {
        let one = |value: &str| Ok(Some(value.to_owned()));
        for (query, expected) in [
            ("", Ok(None)),
            ("tokens=x&xtoken=x&node_id=token", Ok(None)),
            ("token=x", one("x")),
            ("node_id=a&token=x=y", one("x=y")),
            ("token", one("")),
            ("%74oken=x", one("x")),
            ("token=x&token=y", Err(400)),
            ("token=x&token=x", Err(400)),
            ("token&token=x", Err(400)),
            ("token=x&node_id=a&toke%6E=y", Err(400)),
        ] {
            assert_eq!(token(query), expected, "{query}");
        }
        let other: Uri = "/?token=x".parse().unwrap();
        assert!(only(&other, "channel").unwrap().is_none());
    }

    #[test]
    fn what_is_no_text_is_a_problem() {
        let decoded = |query: &str| {
            let uri: Uri = format!("/?{query}").parse().unwrap();
            decoded(&uri, "a")
                .map(|value| value.map(std::borrow::Cow::into_owned))
                .map_err(|problem| problem.status())
        };
        assert_eq!(decoded("a=x%20y+z"), Ok(Some("x y+z".to_owned())));
        assert_eq!(decoded("a=100%"), Ok(Some("100%".to_owned())));
        assert_eq!(decoded("a=%ff"), Err(400));
    }

    proptest! {
        #[test]
        fn a_value_is_found_once_among_whatever_there_is(
            before in proptest::collection::vec("[a-s]{0,3}(=[!$-%'-~]{0,5})?", 0..5),
            value in "[!$-%'-~]{0,20}",
            again in 0_usize..3,
        ) {
            let own = std::iter::repeat_n(format!("token={value}"), again);
            let query = before.into_iter().chain(own).collect::<Vec<_>>().join("&");
            // Some of these characters are not valid in a URL.
            let Ok(uri) = format!("/?{query}").parse::<Uri>() else { return Ok(()) };
            if let Ok(found) = only(&uri, "token") {
                prop_assert_eq!(found, (again == 1).then_some(value.as_str()));
            } else {
                prop_assert_eq!(again, 2);
            }
        }
    }
}
