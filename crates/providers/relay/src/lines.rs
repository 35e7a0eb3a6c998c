//! Reads the lines of a connection, bounded in size and by a budget.

use std::sync::Arc;

use sa_limits::budget::Refused;
use tokio::io::AsyncBufRead;
use tokio::io::AsyncBufReadExt as _;

use crate::byte_counter::{ByteCounter, Charge};

pub(crate) struct Lines<R> {
    reader: R,
    /// The maximum length of a line.
    max: usize,
    byte_counter: Arc<ByteCounter>,
    /// The rest of the current line is discarded.
    skipping: bool,
}

#[derive(Debug)]
pub(crate) enum Line {
    /// A line and its charge, which lasts until the line is handled.
    Complete(Vec<u8>, Charge),
    TooLong,
    /// The budget refuses the line.
    Refused(Refused),
    End,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R, max: usize, byte_counter: &Arc<ByteCounter>) -> Self {
        Self { reader, max, byte_counter: Arc::clone(byte_counter), skipping: false }
    }

    /// Reads the next line. A line that is too long, or that the budget refuses, is reported at
    /// once, and its rest is discarded.
    pub(crate) async fn next(&mut self) -> std::io::Result<Line> {
        let (mut line, mut charge) = (Vec::new(), self.byte_counter.empty());
        loop {
            let part = self.reader.fill_buf().await?;
            if part.is_empty() {
                // An incomplete line at the end of the stream is ignored.
                return Ok(Line::End);
            }
            let end = part.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(part.len(), |end| end + 1);
            let text = &part[..end.unwrap_or(part.len())];
            let length = line.len() + text.len();
            let refused = if self.skipping {
                None
            } else if length > self.max {
                Some(Line::TooLong)
            } else {
                line.extend_from_slice(text);
                charge.resize(length).err().map(Line::Refused)
            };
            self.reader.consume(taken);
            if let Some(refused) = refused {
                self.skipping = end.is_none();
                return Ok(refused);
            }
            match (end, self.skipping) {
                (Some(_), true) => self.skipping = false,
                (Some(_), false) => return Ok(Line::Complete(line, charge)),
                (None, _) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sa_limits::budget::{Holder, Limit, STEP, SharedBudget};
    use tokio::io::BufReader;

    use super::*;

    const TOTAL: usize = 16 * STEP;

    fn budget() -> Arc<SharedBudget> {
        let limit = Limit { name: "b", what: "bytes", key: "k", remedy: "wait", total: TOTAL };
        SharedBudget::new(limit)
    }

    async fn lines(bytes: &[u8], capacity: usize, max: usize) -> Vec<Option<Vec<u8>>> {
        let byte_counter = ByteCounter::new(&budget().share(&Holder::named("a")));
        let mut reader = Lines::new(BufReader::with_capacity(capacity, bytes), max, &byte_counter);
        let mut lines = Vec::new();
        loop {
            match reader.next().await.unwrap() {
                Line::Complete(line, _) => lines.push(Some(line)),
                Line::TooLong => lines.push(None),
                Line::Refused(refused) => panic!("{refused}"),
                Line::End => return lines,
            }
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_does_not_spoil_the_next() {
        let seen = lines(b"abcd\nabcde\n\nab\nrest", 3, 4).await;
        let expected = [Some(b"abcd".to_vec()), None, Some(Vec::new()), Some(b"ab".to_vec())];
        assert_eq!(seen, expected);
    }

    #[tokio::test]
    async fn a_line_takes_from_the_budget_from_its_first_bytes_until_it_is_handled() {
        let budget = budget();
        let other = budget.acquire(&Holder::named("a"), 10 * STEP).unwrap();
        let byte_counter = ByteCounter::new(&budget.share(&Holder::named("a")));
        let text = format!("{}\n{}\nshort\n", "x".repeat(2 * STEP), "y".repeat(3 * STEP));
        let mut lines = Lines::new(text.as_bytes(), usize::MAX, &byte_counter);
        let Line::Complete(line, charge) = lines.next().await.unwrap() else { panic!() };
        assert_eq!((line.len(), budget.used()), (2 * STEP, 12 * STEP));
        let Line::Refused(refused) = lines.next().await.unwrap() else { panic!() };
        assert!(refused.message.contains("of them by this principal"), "{refused}");
        assert_eq!(budget.used(), 12 * STEP, "the refused line is not in memory");
        let Line::Complete(line, _) = lines.next().await.unwrap() else { panic!() };
        assert_eq!(line, b"short");
        drop((charge, other));
        assert_eq!(budget.used(), 0);
    }

    proptest! {
        #[test]
        fn lines_are_separated_by_breaks(
            parts in proptest::collection::vec("[a-z]{0,20}", 0..10), capacity in 1_usize..40, max in 0_usize..24,
        ) {
            let text = parts.iter().flat_map(|part| [part.as_str(), "\n"]).collect::<String>();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let seen = runtime.block_on(lines(text.as_bytes(), capacity, max));
            let expected: Vec<_> = parts.iter().map(|part| (part.len() <= max).then(|| part.as_bytes().to_vec())).collect();
            prop_assert_eq!(seen, expected);
        }
    }
}
