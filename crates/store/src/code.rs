//! How things are written down: identifiers, keys and checksums.

use crc32fast::Hasher;

/// An entry's row number is its stream's number and its sequence number in one integer. A plain integer key is
/// the cheapest B-tree SQLite has: no record to decode for a comparison, and bodies of almost a page stay in
/// the leaf, where a `WITHOUT ROWID` table would move all above a quarter of a page to overflow pages.
pub(crate) const SEQ_BITS: u32 = 43;
/// 8.8 trillion entries a stream: five years at 50,000 a second.
pub(crate) const MAX_SEQ: u64 = (1 << SEQ_BITS) - 1;
/// A million streams and buckets.
pub(crate) const MAX_HEADS: usize = (1 << (63 - SEQ_BITS)) - 1;

/// The row number of an entry.
pub(crate) fn row_id(stream: u32, seq: u64) -> i64 {
    (i64::from(stream) << SEQ_BITS) | seq as i64
}

/// Stream and sequence number of a row.
pub(crate) fn stream_and_seq(row: i64) -> (u32, u64) {
    ((row >> SEQ_BITS) as u32, row as u64 & MAX_SEQ)
}

/// Writes a key as it is indexed: the stream's number, then the key. One blob is compared with one `memcmp`.
///
/// Most keys are UUIDs. They are packed to their 16 bytes, marked in the lowest bit of the prefix, which makes
/// row and index 40 bytes smaller together. Only the canonical form is packed, so unpacking has one answer.
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
    let mut out = [0; 16];
    let mut at = 0;
    for (i, byte) in out.iter_mut().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            if text[at] != b'-' {
                return None;
            }
            at += 1;
        }
        *byte = (hex(text[at])? << 4) | hex(text[at + 1])?;
        at += 2;
    }
    Some(out)
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// The checksum of a log entry: over its stream and number (the row), time, key and body.
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
        check("0190a5b2x7f5e-7cc3-98a1-0123456789ab", 36);
        check("k", 1);
    }

    #[test]
    fn row_numbers_take_the_largest_stream_and_sequence() {
        let row = row_id(MAX_HEADS as u32, MAX_SEQ);
        assert_eq!(stream_and_seq(row), (MAX_HEADS as u32, MAX_SEQ));
        assert!(row > row_id(MAX_HEADS as u32, MAX_SEQ - 1));
    }
}
