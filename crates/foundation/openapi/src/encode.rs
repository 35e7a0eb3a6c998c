//! Percent-encoding according to RFC 6570: all characters except the unreserved ones are encoded.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode_byte, utf8_percent_encode};

const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Encodes a text for `allowReserved`: reserved characters stay, and so do encoded triplets such as
/// `%2F`. Characters that would end the value or the query are encoded nevertheless, so that no
/// argument can add another parameter.
pub(crate) fn encode_reserved(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut encoded = String::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        let triplet = *byte == b'%'
            && bytes.get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        if triplet || byte.is_ascii_alphanumeric() || b"-._~:/?@!$'()*,;=".contains(byte) {
            encoded.push(char::from(*byte));
        } else {
            encoded.push_str(percent_encode_byte(*byte));
        }
    }
    encoded
}

/// Encodes the fixed parts of a path: characters that are valid in a path stay as the author wrote
/// them.
pub(crate) fn encode_path(text: &str) -> String {
    const PATH: &AsciiSet = &RESERVED
        .remove(b'/')
        .remove(b':')
        .remove(b'@')
        .remove(b'!')
        .remove(b'$')
        .remove(b'&')
        .remove(b'\'')
        .remove(b'(')
        .remove(b')')
        .remove(b'*')
        .remove(b'+')
        .remove(b',')
        .remove(b';')
        .remove(b'=')
        .remove(b'%');
    utf8_percent_encode(text, PATH).to_string()
}
