//! Frames with attachments.
//!
//! The layout is a zero byte, the length of the JSON (32 bits, little-endian), the JSON, then the
//! bytes of all attachments in order.

/// The number of bytes before the JSON.
pub const HEADER: usize = 5;

/// Splits a binary frame. Returns its JSON and the offset at which the attachments begin.
pub fn split(frame: &[u8]) -> Result<(&str, usize), &'static str> {
    let (header, rest) =
        frame.split_at_checked(HEADER).ok_or("a binary frame has at least five bytes")?;
    let [0, a, b, c, d] = *header else { return Err("a binary frame begins with a zero byte") };
    let len = u32::from_le_bytes([a, b, c, d]) as usize;
    let json =
        rest.get(..len).ok_or("the frame is shorter than the announced length of its JSON")?;
    let json = std::str::from_utf8(json).map_err(|_| "the JSON of the frame is not UTF-8")?;
    Ok((json, HEADER + len))
}

/// Builds a binary frame.
pub fn join(json: &str, attachments: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER + json.len() + attachments.len());
    frame.push(0);
    frame.extend_from_slice(&(json.len() as u32).to_le_bytes());
    frame.extend_from_slice(json.as_bytes());
    frame.extend_from_slice(attachments);
    frame
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_that_lie_are_refused() {
        for bad in [
            &b""[..],
            b"\0\0\0\0",
            b"\x01\0\0\0\0",
            b"\0\x05\0\0\0ab",
            b"\0\xff\xff\xff\xff{}",
            b"\0\x01\0\0\0\xff",
        ] {
            assert!(split(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_was_joined_is_split_again(json in any::<String>(), bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let frame = join(&json, &bytes);
            let (text, at) = split(&frame).unwrap();
            prop_assert_eq!(text, &json);
            prop_assert_eq!(&frame[at..], &bytes);
        }

        #[test]
        fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = split(&bytes);
        }
    }
}
