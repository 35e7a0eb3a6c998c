//! Reads SQLite's write-ahead log to find out whether it is complete.
//!
//! When SQLite recovers a WAL, it treats the first frame with a wrong checksum as the end. This is
//! right after a power loss, when the last frames may be torn. It is wrong after damage, because
//! acknowledged commits would be lost silently.
//!
//! The WAL is therefore read here before SQLite opens the file. It is compared with the contents
//! that the [witness](crate::witness) requires. The format is documented at
//! <https://sqlite.org/fileformat2.html#walformat>.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// Identifies a WAL: SQLite changes the salts whenever it restarts the file.
pub(crate) type Salts = [u8; 8];

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// Returns the salts in the header, if there is a header.
pub(crate) fn salts(file: &File) -> Option<Salts> {
    use std::os::unix::fs::FileExt;
    let mut salts = [0; 8];
    file.read_exact_at(&mut salts, 16).ok()?;
    Some(salts)
}

/// The result of [`scan`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    /// The file does not exist or has no complete header.
    Missing,
    /// The header has a wrong checksum or invalid contents.
    BadHeader,
    /// The first `intact` frames are intact.
    Frames { salts: Salts, intact: u32 },
}

/// Reads the frames of a WAL until `wanted` intact frames are found or one is damaged.
pub(crate) fn scan(path: &Path, wanted: u32) -> std::io::Result<Scan> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Scan::Missing),
        Err(e) => return Err(e),
    };
    let mut input = BufReader::with_capacity(1 << 18, file);
    let mut header = [0; HEADER];
    if !fill(&mut input, &mut header)? {
        return Ok(Scan::Missing);
    }
    let big_endian = match be32(&header, 0) {
        0x377f_0682 => false,
        0x377f_0683 => true,
        _ => return Ok(Scan::BadHeader),
    };
    let page = be32(&header, 8) as usize;
    let mut sum = (0, 0);
    checksum(big_endian, &header[..24], &mut sum);
    if sum != (be32(&header, 24), be32(&header, 28)) || !page.is_power_of_two() || page > 65536 {
        return Ok(Scan::BadHeader);
    }
    let mut salts = [0; 8];
    salts.copy_from_slice(&header[16..24]);
    let mut frame = vec![0; FRAME_HEADER + page];
    let mut intact = 0;
    while intact < wanted && fill(&mut input, &mut frame)? {
        checksum(big_endian, &frame[..8], &mut sum);
        checksum(big_endian, &frame[FRAME_HEADER..], &mut sum);
        if frame[8..16] != salts || sum != (be32(&frame, 16), be32(&frame, 20)) {
            break;
        }
        intact += 1;
    }
    Ok(Scan::Frames { salts, intact })
}

fn fill(input: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<bool> {
    match input.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn checksum(big_endian: bool, bytes: &[u8], sum: &mut (u32, u32)) {
    let word = |b: &[u8]| {
        let b = [b[0], b[1], b[2], b[3]];
        if big_endian { u32::from_be_bytes(b) } else { u32::from_le_bytes(b) }
    };
    for pair in bytes.chunks_exact(8) {
        sum.0 = sum.0.wrapping_add(word(&pair[..4])).wrapping_add(sum.1);
        sum.1 = sum.1.wrapping_add(word(&pair[4..])).wrapping_add(sum.0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a log of these pages, with the salts and checksums that SQLite writes.
    fn log(big_endian: bool, page: u32, salts: Salts, frames: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let words = [if big_endian { 0x377f_0683_u32 } else { 0x377f_0682 }, 3_007_000, page, 0];
        for word in words {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(salts);
        let mut sum = (0, 0);
        checksum(big_endian, &bytes, &mut sum);
        bytes.extend([sum.0.to_be_bytes(), sum.1.to_be_bytes()].concat());
        for number in 0..frames {
            let head = [(number as u32).to_be_bytes(), 0_u32.to_be_bytes()].concat();
            let content = vec![number as u8; page as usize];
            checksum(big_endian, &head, &mut sum);
            checksum(big_endian, &content, &mut sum);
            bytes.extend(
                [&head[..], &salts, &sum.0.to_be_bytes(), &sum.1.to_be_bytes(), &content].concat(),
            );
        }
        bytes
    }

    fn scanned(bytes: &[u8], wanted: u32) -> Scan {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        scan(file.path(), wanted).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn frames_are_intact_up_to_the_first_bit_that_is_not(
            big_endian: bool, page in prop::sample::select(&[512_u32, 1_024][..]), salts: Salts, frames in 0_usize..5,
            at: prop::sample::Index, bit in 0_u8..8, cut: prop::sample::Index,
        ) {
            let whole = log(big_endian, page, salts, frames);
            prop_assert_eq!(scanned(&whole, u32::MAX), Scan::Frames { salts, intact: frames as u32 });
            let size = FRAME_HEADER + page as usize;
            let cut = cut.index(whole.len());
            let expected = match cut.checked_sub(HEADER) {
                None => Scan::Missing,
                Some(length) => Scan::Frames { salts, intact: (length / size) as u32 },
            };
            prop_assert_eq!(scanned(&whole[..cut], u32::MAX), expected);
            let mut bent = whole.clone();
            let at = at.index(whole.len());
            bent[at] ^= 1 << bit;
            let expected = match at.checked_sub(HEADER) {
                None => Scan::BadHeader,
                Some(behind) => Scan::Frames { salts, intact: (behind / size) as u32 },
            };
            prop_assert_eq!(scanned(&bent, u32::MAX), expected);
        }

        #[test]
        fn no_file_breaks_the_reader(noise in prop::collection::vec(any::<u8>(), 0..600), page: u32) {
            prop_assert!(matches!(scanned(&noise, u32::MAX), Scan::Missing | Scan::BadHeader));
            let headed = log(true, page, [7; 8], 0);
            let found = scanned(&[headed, noise].concat(), u32::MAX);
            prop_assert!(matches!(found, Scan::BadHeader | Scan::Frames { intact: 0, .. }), "the rule is broken");
        }
    }
}
