//! A page of a text: some of its lines, with their numbers.

use std::io::{self, BufRead, Read as _};

use sa_node_sdk::protocol::escaped_prefix;

use super::escaped_len;

/// The requested lines, and their maximum size as JSON.
pub(super) struct Wanted {
    pub(super) offset: u64,
    pub(super) limit: u64,
    pub(super) room: usize,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Page {
    /// Each line as its number, a tab, and the text.
    pub(super) content: String,
    pub(super) lines: u64,
    pub(super) end: End,
}

/// The reason why a page ends.
#[derive(Debug, Default, PartialEq)]
pub(super) enum End {
    /// The page has the requested number of lines.
    #[default]
    Limit,
    /// The text has no more lines; this is their number.
    Text(u64),
    /// The next line did not fit.
    Room,
    /// Not even the first line fitted; the page contains only its beginning.
    InsideLine,
}

/// The reason why there is no page.
#[derive(Debug)]
pub(super) enum NoPage {
    NotText,
    Io(io::Error),
}

impl From<io::Error> for NoPage {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads a page. Reads no further than its end, and stores only the page.
///
/// Lines end at `\n` or `\r\n`, as for `str::lines`.
pub(super) fn page(text: &mut impl BufRead, wanted: &Wanted) -> Result<Page, NoPage> {
    let mut page = Page::default();
    let skipped = skip_lines(text, wanted.offset)?;
    if skipped < wanted.offset {
        page.end = End::Text(skipped);
        return Ok(page);
    }
    let mut left = wanted.room;
    let mut line = Vec::new();
    while page.lines < wanted.limit {
        line.clear();
        // Two bytes more than the budget, for the line's end.
        if text.take(left as u64 + 2).read_until(b'\n', &mut line)? == 0 {
            page.end = End::Text(wanted.offset + page.lines);
            return Ok(page);
        }
        let whole = ends_here(text, &line)?;
        let line = decode(&line, whole)?;
        let number = wanted.offset + page.lines + 1;
        let prefix = if page.lines == 0 { format!("{number}\t") } else { format!("\n{number}\t") };
        let size = escaped_len(&prefix) + escaped_len(line);
        if !whole || size > left {
            page.end = End::Room;
            if page.lines == 0 {
                page.content = prefix;
                page.content.push_str(escaped_prefix(
                    line,
                    left.saturating_sub(escaped_len(&page.content)),
                ));
                page.lines = 1;
                page.end = End::InsideLine;
            }
            if !whole {
                text.skip_until(b'\n')?;
            }
            return Ok(page);
        }
        left -= size;
        page.content.push_str(&prefix);
        page.content.push_str(line);
        page.lines += 1;
    }
    Ok(page)
}

/// Skips lines. Returns the number of lines that were skipped.
pub(super) fn skip_lines(text: &mut impl BufRead, lines: u64) -> io::Result<u64> {
    for skipped in 0..lines {
        if text.skip_until(b'\n')? == 0 {
            return Ok(skipped);
        }
    }
    Ok(lines)
}

/// Returns whether the line was read completely.
fn ends_here(text: &mut impl BufRead, line: &[u8]) -> io::Result<bool> {
    Ok(line.ends_with(b"\n") || text.fill_buf()?.is_empty())
}

/// Decodes a line without its end. A truncated line may end inside a character.
fn decode(line: &[u8], whole: bool) -> Result<&str, NoPage> {
    let line =
        line.strip_suffix(b"\n").map_or(line, |line| line.strip_suffix(b"\r").unwrap_or(line));
    match std::str::from_utf8(line) {
        Ok(line) => Ok(line),
        Err(error) if !whole && error.error_len().is_none() => {
            Ok(std::str::from_utf8(&line[..error.valid_up_to()]).unwrap_or_default())
        }
        Err(_) => Err(NoPage::NotText),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &[u8], offset: u64, limit: u64, room: usize) -> Result<Page, NoPage> {
        // The small buffer splits lines and characters between two reads.
        page(&mut io::BufReader::with_capacity(3, text), &Wanted { offset, limit, room })
    }

    fn naive(text: &str, offset: usize, limit: usize) -> String {
        let numbered = text.lines().enumerate().skip(offset).take(limit);
        numbered.map(|(at, line)| format!("{}\t{line}", at + 1)).collect::<Vec<_>>().join("\n")
    }

    proptest! {
        #[test]
        fn numbering_is_that_of_the_lines(text in "([aé\u{1F600}\t\"]{0,4}(\n|\r\n|\r)?){0,12}", offset in 0usize..14, limit in 0usize..14) {
            let page = read(text.as_bytes(), offset as u64, limit as u64, 10_000).unwrap();
            let lines = text.lines().skip(offset).take(limit).count();
            prop_assert_eq!(page.content, naive(&text, offset, limit));
            prop_assert_eq!(page.lines, lines as u64);
            if let End::Text(total) = page.end {
                prop_assert_eq!(total, text.lines().count() as u64);
            }
        }

        #[test]
        fn a_page_fits_and_the_next_goes_on(text in "([aé\u{1}\"]{0,9}(\n|\r\n)){1,12}", room in 30usize..60) {
            let (mut offset, mut all) = (0, Vec::new());
            loop {
                let page = read(text.as_bytes(), offset, u64::MAX, room).unwrap();
                prop_assert!(serde_json::to_string(&page.content).unwrap().len() <= room + 2);
                offset += page.lines;
                if page.lines > 0 {
                    all.push(page.content);
                }
                match page.end {
                    End::Text(_) => break,
                    // No line is skipped without a report.
                    End::InsideLine | End::Room => prop_assert!(page.lines > 0),
                    End::Limit => prop_assert!(false),
                }
            }
            if text.lines().all(|line| escaped_len(line) < 25) {
                prop_assert_eq!(all.join("\n"), naive(&text, 0, usize::MAX));
            }
        }
    }

    #[test]
    fn a_line_that_does_not_fit_is_cut_between_characters() {
        let page = read("ééééééé\nnext".as_bytes(), 0, u64::MAX, 8).unwrap();
        assert_eq!((page.content.as_str(), page.lines, page.end), ("1\téé", 1, End::InsideLine));
    }

    #[test]
    fn what_is_no_text_is_found_wherever_it_is() {
        assert!(matches!(read(b"a\nb\xff\n", 0, 9, 100), Err(NoPage::NotText)));
        assert!(matches!(read(b"a\nb\xff\n", 0, 1, 100), Ok(page) if page.lines == 1));
        assert!(matches!(read(b"a\nb\xc3", 0, 9, 100), Err(NoPage::NotText)));
    }
}
