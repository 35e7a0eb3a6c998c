//! The encoding of identifiers, keys and checksums.

use crc32fast::Hasher;

/// The number of bits of a sequence number in a row id.
///
/// The row id of an entry combines the stream's id and the sequence number in one integer. A plain
/// integer key is the cheapest B-tree in SQLite, because no record is decoded for a comparison.
/// Bodies of almost a page stay in the leaf. A `WITHOUT ROWID` table would move bodies above a
/// quarter of a page to overflow pages.
pub(crate) const SEQ_BITS: u32 = 43;
/// 8.8 trillion entries per stream: five years at 50,000 entries per second.
pub(crate) const MAX_SEQ: u64 = (1 << SEQ_BITS) - 1;
/// One million streams and buckets.
pub(crate) const MAX_HEADS: usize = (1 << (63 - SEQ_BITS)) - 1;

/// Returns the row id of an entry.
pub(crate) fn row_id(stream: u32, seq: u64) -> i64 {
    (i64::from(stream) << SEQ_BITS) | seq as i64
}

/// Returns the stream and the sequence number of a row.
pub(crate) fn stream_and_seq(row: i64) -> (u32, u64) {
    ((row >> SEQ_BITS) as u32, row as u64 & MAX_SEQ)
}

/// Encodes a key for the index: the stream's id, then the key. A single `memcmp` compares two keys.
///
/// Most keys are UUIDs. They are packed into 16 bytes and marked in the lowest bit of the prefix,
/// which saves 40 bytes in row and index together. Only the canonical form is packed, so unpacking
/// is unambiguous.
pub(crate) fn pack_key<'a>(stream: u32, key: &str, buffer: &'a mut Vec<u8>) -> &'a [u8] {
    buffer.clear();
    if let Some(uuid) = parse_uuid(key.as_bytes()) {
        buffer.extend_from_slice(&((stream << 1) | 1).to_be_bytes());
        buffer.extend_from_slice(&uuid);
    } else {
        buffer.extend_from_slice(&(stream << 1).to_be_bytes());
        buffer.extend_from_slice(key.as_bytes());
    }
    buffer
}

fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
    let text: &[u8; 36] = text.try_into().ok()?;
    let mut wrong = (text[8] ^ b'-') | (text[13] ^ b'-') | (text[18] ^ b'-') | (text[23] ^ b'-');
    let mut out = [0; 16];
    for (byte, at) in out.iter_mut().zip(UUID_DIGITS) {
        let (high, low) = (DIGITS[text[at] as usize], DIGITS[text[at + 1] as usize]);
        // Checked once at the end, because this loop runs for every record.
        wrong |= (high | low) & NO_DIGIT;
        *byte = (high << 4) | low;
    }
    (wrong == 0).then_some(out)
}

/// Returns the first and the last packed key of a stream that can begin with `prefix`.
///
/// Returns `None` if no UUID begins with it.
pub(crate) fn uuid_range(stream: u32, prefix: &str) -> Option<([u8; 20], [u8; 20])> {
    const LOW: &str = "00000000-0000-0000-0000-000000000000";
    const HIGH: &str = "ffffffff-ffff-ffff-ffff-ffffffffffff";
    let prefix = prefix.to_ascii_lowercase();
    let bound = |rest: &str| -> Option<[u8; 20]> {
        let uuid = parse_uuid(format!("{prefix}{}", rest.get(prefix.len()..)?).as_bytes())?;
        let mut key = [0; 20];
        key[..4].copy_from_slice(&((stream << 1) | 1).to_be_bytes());
        key[4..].copy_from_slice(&uuid);
        Some(key)
    };
    Some((bound(LOW)?, bound(HIGH)?))
}

/// The position of the two digits of each byte in a UUID.
const UUID_DIGITS: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];
const NO_DIGIT: u8 = 0x80;
/// The value of each character as a hexadecimal digit.
const DIGITS: [u8; 256] = {
    let mut worth = [NO_DIGIT; 256];
    let mut digit = 0;
    while digit < 16 {
        worth[b"0123456789abcdef"[digit] as usize] = digit as u8;
        digit += 1;
    }
    worth
};

/// The checksum of a log entry, over its row id, time, key and body.
pub(crate) fn entry_crc(row: i64, at_ms: i64, key: Option<&[u8]>, body: &[u8]) -> u32 {
    let mut fixed = [0; 20];
    fixed[..8].copy_from_slice(&row.to_le_bytes());
    fixed[8..16].copy_from_slice(&at_ms.to_le_bytes());
    let key_len = key.map_or(u32::MAX, |k| k.len() as u32);
    fixed[16..].copy_from_slice(&key_len.to_le_bytes());
    let mut crc = Hasher::new();
    crc.update(&fixed);
    crc.update(key.unwrap_or_default());
    crc.update(body);
    crc.finalize()
}

/// The checksum of a document.
pub(crate) fn record_crc(bucket: u32, key: &str, revision: i64, value: &[u8]) -> u32 {
    let mut crc = Hasher::new();
    crc.update(&bucket.to_le_bytes());
    crc.update(&revision.to_le_bytes());
    crc.update(&(key.len() as u32).to_le_bytes());
    crc.update(key.as_bytes());
    crc.update(value);
    crc.finalize()
}

/// The checksum of a head.
pub(crate) fn head_crc(id: u32, kind: i64, name: &str, numbers: [i64; 3]) -> u32 {
    let mut crc = Hasher::new();
    crc.update(&id.to_le_bytes());
    crc.update(&kind.to_le_bytes());
    for number in numbers {
        crc.update(&number.to_le_bytes());
    }
    crc.update(name.as_bytes());
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &str, expected_len: usize) {
        let mut buffer = Vec::new();
        assert_eq!(pack_key(5, key, &mut buffer).len(), 4 + expected_len);
    }

    #[test]
    fn canonical_uuids_are_packed_and_nothing_else_is() {
        check("0190a5b2-7f5e-7cc3-98a1-0123456789ab", 16);
        check("0190A5B2-7f5e-7cc3-98a1-0123456789ab", 36);
        for at in 0..36 {
            let mut key = "0190a5b2-7f5e-7cc3-98a1-0123456789ab".to_owned();
            key.replace_range(at..=at, "x");
            check(&key, 36);
        }
        assert_eq!(
            pack_key(1, "0190a5b2-7f5e-7cc3-98a1-0123456789ab", &mut Vec::new())[4..],
            [
                0x01, 0x90, 0xa5, 0xb2, 0x7f, 0x5e, 0x7c, 0xc3, 0x98, 0xa1, 0x01, 0x23, 0x45, 0x67,
                0x89, 0xab
            ]
        );
        check("k", 1);
    }

    #[test]
    fn row_numbers_take_the_largest_stream_and_sequence() {
        let row = row_id(MAX_HEADS as u32, MAX_SEQ);
        assert_eq!(stream_and_seq(row), (MAX_HEADS as u32, MAX_SEQ));
        assert!(row > row_id(MAX_HEADS as u32, MAX_SEQ - 1));
    }

    proptest::proptest! {
        /// Two different keys must not have the same encoding.
        #[test]
        fn no_two_keys_are_written_alike(
            a in "[0-9a-fA-F]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|.{0,24}", b in ".{0,24}",
            streams in (0..MAX_HEADS as u32, 0..MAX_HEADS as u32),
        ) {
            let packed = |stream, key: &str| pack_key(stream, key, &mut Vec::new()).to_vec();
            // The bytes of a packed key, used as a key themselves.
            let bytes = String::from_utf8_lossy(&packed(0, &a)[4..]).into_owned();
            for other in [&b, &bytes, &a.to_lowercase()] {
                proptest::prop_assert_eq!(packed(streams.0, &a) == packed(streams.0, other), a == *other);
            }
            proptest::prop_assert_eq!(packed(streams.0, &a) == packed(streams.1, &a), streams.0 == streams.1);
        }

        #[test]
        fn a_row_is_its_stream_and_its_number(stream in 0..=MAX_HEADS as u32, seq in 0..=MAX_SEQ) {
            proptest::prop_assert_eq!(stream_and_seq(row_id(stream, seq)), (stream, seq));
        }
    }
}
