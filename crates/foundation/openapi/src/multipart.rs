//! Files in arguments, and `multipart/form-data`.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode_str;

/// A file in an argument: base64, or a `data:` URL, which also contains its type and optionally its
/// name (`data:image/png;name=cat.png;base64,…`).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) bytes: Vec<u8>,
    pub(crate) media: Option<String>,
    pub(crate) name: Option<String>,
}

impl File {
    pub(crate) fn read(text: &str) -> Result<Self, &'static str> {
        const WRONG: &str = "has to be a file, as base64 or as a data: URL";
        let head = text.get(..5).is_some_and(|head| head.eq_ignore_ascii_case("data:"));
        if !head {
            return Ok(Self { bytes: decode(text).ok_or(WRONG)?, media: None, name: None });
        }
        let (about, data) = text[5..].split_once(',').ok_or(WRONG)?;
        let mut parts = about.split(';').map(str::trim);
        let media = parts.next().filter(|media| media.contains('/')).map(str::to_owned);
        let (mut base64, mut name, mut parameters) = (false, None, String::new());
        for part in parts {
            if part.eq_ignore_ascii_case("base64") {
                base64 = true;
            } else if let Some(value) =
                part.strip_prefix("name=").or_else(|| part.strip_prefix("filename="))
            {
                name = Some(
                    percent_decode_str(value).decode_utf8_lossy().trim_matches('"').to_owned(),
                );
            } else if !part.is_empty() {
                parameters.push_str(&format!("; {part}"));
            }
        }
        let media = media.map(|media| media + &parameters);
        if media
            .as_deref()
            .is_some_and(|media| media.chars().any(|c| c.is_control() || !c.is_ascii()))
        {
            return Err(WRONG);
        }
        let bytes =
            if base64 { decode(data).ok_or(WRONG)? } else { percent_decode_str(data).collect() };
        Ok(Self { bytes, media, name })
    }
}

/// Decodes base64 of either alphabet, with or without padding, and with line breaks.
fn decode(text: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const PLAIN: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::STANDARD, LENIENT);
    const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::URL_SAFE, LENIENT);
    let text: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    PLAIN.decode(&text).or_else(|_| URL_SAFE.decode(&text)).ok()
}

/// One part of a form.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) filename: Option<String>,
    pub(crate) media: Option<String>,
    pub(crate) bytes: Vec<u8>,
}

/// Writes the form, and returns it with the content type that names its boundary. Files come last:
/// some servers need the other fields before they receive the files.
pub(crate) fn write(mut parts: Vec<Part>) -> (Vec<u8>, String) {
    parts.sort_by_key(|part| part.filename.is_some());
    let boundary = boundary(&parts);
    let mut body = Vec::new();
    for part in &parts {
        body.extend_from_slice(format!("--{boundary}\r\n").as_bytes());
        body.extend_from_slice(
            format!("Content-Disposition: form-data; name=\"{}\"", quoted(&part.name)).as_bytes(),
        );
        if let Some(filename) = &part.filename {
            body.extend_from_slice(format!("; filename=\"{}\"", quoted(filename)).as_bytes());
        }
        if let Some(media) = &part.media {
            body.extend_from_slice(format!("\r\nContent-Type: {media}").as_bytes());
        }
        body.extend_from_slice(b"\r\n\r\n");
        body.extend_from_slice(&part.bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    (body, format!("multipart/form-data; boundary={boundary}"))
}

/// Finds a boundary that occurs in no part, in one pass over any content.
fn boundary(parts: &[Part]) -> String {
    const START: &[u8] = b"switchboard-form-";
    const DIGITS: usize = 16;
    let mut used = HashSet::new();
    for part in parts {
        for window in
            part.bytes.windows(START.len() + DIGITS).filter(|window| window.starts_with(START))
        {
            let digits = std::str::from_utf8(&window[START.len()..]).ok();
            used.extend(digits.and_then(|digits| digits.parse::<u64>().ok()));
        }
    }
    let free = (0..=used.len() as u64).find(|number| !used.contains(number)).unwrap_or_default();
    format!("{}{free:016}", String::from_utf8_lossy(START))
}

/// Escapes a text like browsers do.
fn quoted(text: &str) -> String {
    text.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_file_is_read_as_it_was_written(bytes in sa_hostile::noise(), name in "[^;,\"\\s]{0,8}") {
            let (plain, safe) = (BASE64_STANDARD.encode(&bytes), BASE64_URL_SAFE_NO_PAD.encode(&bytes));
            let broken: String = plain.chars().flat_map(|c| [c, '\n']).collect();
            for text in [plain.clone(), safe, broken] {
                prop_assert_eq!(File::read(&text).unwrap().bytes, &bytes[..]);
            }
            let encoded = percent_encoding::utf8_percent_encode(&name, percent_encoding::NON_ALPHANUMERIC);
            let file = File::read(&format!("data:image/png;name={encoded};base64,{plain}")).unwrap();
            prop_assert_eq!((file.media.as_deref(), file.name), (Some("image/png"), Some(name)));
            prop_assert_eq!(file.bytes, bytes);
        }

        #[test]
        fn no_text_makes_a_file_that_breaks_its_form(
            text in sa_hostile::text(&["data:", "image/png", ";", "name=", "filename=", "base64", ",", "AAAA", "=", "\"", "charset=x"]),
            name in sa_hostile::text(&["a", "\"", ";"]),
        ) {
            let Ok(file) = File::read(&text) else { return Ok(()) };
            prop_assert!(file.media.as_deref().is_none_or(|media| media.is_ascii() && !media.contains(char::is_control)));
            let part = Part { name, filename: file.name, media: file.media, bytes: file.bytes.clone() };
            let (body, media) = write(vec![part]);
            let boundary = media.strip_prefix("multipart/form-data; boundary=").unwrap();
            prop_assert!(!file.bytes.windows(boundary.len()).any(|window| window == boundary.as_bytes()));
            // The head has two or three lines, and the file's content follows.
            let head = body.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
            prop_assert!(body[..head].split(|byte| *byte == b'\n').count() <= 3);
            prop_assert!(body[head + 4..].starts_with(&file.bytes));
        }
    }
}
