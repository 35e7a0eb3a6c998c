//! The authors of messages: only the author of a message may update it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The maximum number of messages with cached authors.
const REMEMBERED: usize = 10_000;

/// The authors of the latest messages, stored or not.
#[derive(Debug, Default)]
pub(crate) struct Authors {
    known: HashMap<String, Author>,
    order: VecDeque<String>,
}

#[derive(Debug, Clone)]
struct Author {
    participant: Arc<str>,
    /// Whether it is certain that no older message has the same id. Otherwise, the log must be
    /// checked.
    certain: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Own,
    Foreign,
    /// The log must be checked.
    Unknown,
}

impl Authors {
    /// Returns whether the participant is the author of this message.
    pub(crate) fn verdict(&self, message: &str, participant: &str) -> Verdict {
        match self.known.get(message) {
            Some(author) if *author.participant != *participant => Verdict::Foreign,
            Some(author) if author.certain => Verdict::Own,
            _ => Verdict::Unknown,
        }
    }

    /// Records a new message. `certain` is set for messages that are not stored.
    pub(crate) fn begin(&mut self, message: &str, participant: &Arc<str>, certain: bool) {
        let author = Author { participant: Arc::clone(participant), certain };
        if self.known.insert(message.to_owned(), author).is_none() {
            self.order.push_back(message.to_owned());
        }
        while self.order.len() > REMEMBERED {
            self.order.pop_front().map(|oldest| self.known.remove(&oldest));
        }
    }

    /// Records that the message was stored as the first with its id.
    pub(crate) fn confirm(&mut self, message: &str) {
        if let Some(author) = self.known.get_mut(message) {
            author.certain = true;
        }
    }

    /// Records the actual author: another participant used this id first.
    pub(crate) fn correct(&mut self, message: &str, participant: &str) {
        if let Some(author) = self.known.get_mut(message) {
            *author = Author { participant: participant.into(), certain: true };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_its_authors_once_it_is_known_to_be_the_first() {
        let mut authors = Authors::default();
        assert_eq!(authors.verdict("m", "ann"), Verdict::Unknown);
        authors.begin("m", &"ann".into(), false);
        assert_eq!(authors.verdict("m", "ann"), Verdict::Unknown);
        assert_eq!(authors.verdict("m", "bob"), Verdict::Foreign);
        authors.confirm("m");
        assert_eq!(authors.verdict("m", "ann"), Verdict::Own);
        authors.correct("m", "bob");
        assert_eq!(authors.verdict("m", "ann"), Verdict::Foreign);
    }

    #[test]
    fn only_the_latest_are_remembered() {
        let mut authors = Authors::default();
        for n in 0..=REMEMBERED {
            authors.begin(&n.to_string(), &"ann".into(), true);
        }
        assert_eq!(authors.verdict("0", "ann"), Verdict::Unknown);
        assert_eq!(authors.known.len(), REMEMBERED);
    }
}
