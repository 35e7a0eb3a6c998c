//! State of one connected node beside its tools: the programs on its machine and its recent events.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sa_core::{ProviderEvent, ProviderId, RawJson, clock};
use sa_limits::rate::Rate;
use sa_protocol::node::{self, BinProbe, BinProbeResult, NodeEvent};
use sa_protocol::{MAX_EVENT_BYTES, validate_capability};
use sa_socket::Outbox;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::KIND;

/// The timeout for a node to answer a probe.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of programs in one probe.
pub const MAX_BINS: usize = 64;
/// The maximum length of a program name.
const MAX_BIN_NAME: usize = 128;
/// The maximum number of open probes per node.
const MAX_ASKED: usize = 16;
/// The maximum number of programs with a cached answer. The oldest answers are removed first.
const MAX_KNOWN: usize = 1_024;
/// The rate limit of a node's events: the burst size, and the events per second after it.
const EVENT_BURST: NonZeroU32 = NonZeroU32::new(64).unwrap();
const EVENTS_PER_SECOND: NonZeroU32 = NonZeroU32::new(16).unwrap();
/// The number of recent events that are kept, and the largest data that is kept with one.
const MAX_RECENT: usize = 16;
const MAX_RECENT_BYTES: usize = 2 * 1024;

/// One connection of a node.
///
/// Another connection of the same node has its own `Host`, and shares nothing with this one.
#[derive(Debug)]
pub struct Host {
    id: ProviderId,
    outbox: Outbox,
    can_probe: bool,
    /// Limits the events.
    events: Rate,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    known: HashMap<String, Known>,
    updated_at_ms: Option<i64>,
    asked: HashMap<u64, Asked>,
    questions: u64,
    closed: bool,
    recent: VecDeque<Arc<ProviderEvent>>,
    bad_frames: Option<BadFrames>,
}

/// The frames of a node that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadFrames {
    pub count: u64,
    /// The error of the last one.
    pub last: String,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    there: bool,
    at: Instant,
}

/// A probe that the node has not answered. Waiting tasks notice when the sender is dropped.
#[derive(Debug)]
struct Asked {
    bins: Vec<String>,
    open: watch::Sender<()>,
}

/// The reason why a node's programs are unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    #[error("a probe must name 1 to {MAX_BINS} programs, not {0}")]
    Count(usize),
    #[error(
        "\"{0}\" is not a valid program name: use 1 to {MAX_BIN_NAME} bytes without slashes, spaces or control characters"
    )]
    Name(String),
    #[error("the node does not support probes (the feature bin_probe)")]
    Unsupported,
    #[error("the node has not answered {MAX_ASKED} earlier probes")]
    Busy,
    #[error("the node did not answer within {} s", PROBE_TIMEOUT.as_secs())]
    Timeout,
    #[error("the node disconnected")]
    Gone,
}

/// Checks the program names of a probe.
pub fn check_bins(bins: &[String]) -> Result<(), ProbeError> {
    if !(1..=MAX_BINS).contains(&bins.len()) {
        return Err(ProbeError::Count(bins.len()));
    }
    let usable = |bin: &String| {
        let odd = |c: char| c == '/' || c == '\\' || c.is_whitespace() || c.is_control();
        (1..=MAX_BIN_NAME).contains(&bin.len()) && !bin.contains(odd) && bin != "." && bin != ".."
    };
    match bins.iter().find(|bin| !usable(bin)) {
        Some(bin) => Err(ProbeError::Name(
            bin.chars().take(MAX_BIN_NAME).flat_map(char::escape_debug).collect(),
        )),
        None => Ok(()),
    }
}

impl Host {
    pub(crate) fn new(id: &str, outbox: Outbox, can_probe: bool) -> Arc<Self> {
        let state = State {
            known: HashMap::new(),
            updated_at_ms: None,
            asked: HashMap::new(),
            questions: 0,
            closed: false,
            recent: VecDeque::new(),
            bad_frames: None,
        };
        Arc::new(Self {
            id: ProviderId::new(KIND, id),
            outbox,
            can_probe,
            events: Rate::new(EVENTS_PER_SECOND, EVENT_BURST),
            state: Mutex::new(state),
        })
    }

    /// Returns all programs that were probed on this connection, and the time of the last answer in
    /// milliseconds since 1970.
    pub fn bin_status(&self) -> (BTreeMap<String, bool>, Option<i64>) {
        let state = self.state();
        (
            state.known.iter().map(|(bin, known)| (bin.clone(), known.there)).collect(),
            state.updated_at_ms,
        )
    }

    /// Returns the node's recent events, oldest first. Large data is left out.
    pub fn recent_events(&self) -> Vec<Arc<ProviderEvent>> {
        self.state().recent.iter().cloned().collect()
    }

    /// Returns the unreadable frames on this connection, if there were any.
    pub fn bad_frames(&self) -> Option<BadFrames> {
        self.state().bad_frames.clone()
    }

    /// Records an unreadable frame, and returns the number of such frames so far.
    pub(crate) fn bad_frame(&self, why: &str) -> u64 {
        let mut state = self.state();
        let count = state.bad_frames.as_ref().map_or(0, |bad| bad.count) + 1;
        state.bad_frames = Some(BadFrames { count, last: why.to_owned() });
        count
    }

    /// Returns which of these programs exist on the node's machine.
    ///
    /// Answers that are not older than `since` come from the cache. The node is asked about the
    /// other programs. Concurrent callers share one probe.
    pub async fn probe(
        &self,
        bins: &[String],
        since: Option<Instant>,
    ) -> Result<BTreeMap<String, bool>, ProbeError> {
        check_bins(bins)?;
        let over = Instant::now() + PROBE_TIMEOUT;
        loop {
            // Dropped at the end of the iteration, so that no task waits for the probe of a
            // cancelled caller.
            let (_question, waits) = match self.ask(bins, since)? {
                Step::Known(answer) => return Ok(answer),
                Step::Wait(question, waits) => (question, waits),
            };
            for mut open in waits {
                // Returns an error when the probe is answered or cancelled.
                let wait = async { while open.changed().await.is_ok() {} };
                tokio::time::timeout_at(over, wait).await.map_err(|_| ProbeError::Timeout)?;
            }
        }
    }

    fn ask(&self, bins: &[String], since: Option<Instant>) -> Result<Step<'_>, ProbeError> {
        let mut state = self.state();
        let fresh = |known: &&Known| since.is_none_or(|since| known.at >= since);
        let known = |bin: &String| {
            state.known.get(bin).filter(fresh).map(|known| (bin.clone(), known.there))
        };
        let mut unknown: Vec<String> =
            bins.iter().filter(|bin| known(bin).is_none()).cloned().collect();
        if unknown.is_empty() {
            return Ok(Step::Known(bins.iter().filter_map(known).collect()));
        }
        if !self.can_probe {
            return Err(ProbeError::Unsupported);
        }
        if state.closed {
            return Err(ProbeError::Gone);
        }
        let mut waits = Vec::new();
        for asked in state.asked.values() {
            let before = unknown.len();
            unknown.retain(|bin| !asked.bins.contains(bin));
            if unknown.len() < before {
                waits.push(asked.open.subscribe());
            }
        }
        if unknown.is_empty() {
            return Ok(Step::Wait(None, waits));
        }
        if state.asked.len() == MAX_ASKED {
            return Err(ProbeError::Busy);
        }
        unknown.sort_unstable();
        unknown.dedup();
        state.questions += 1;
        let number = state.questions;
        let mut frame = String::new();
        node::encode_bin_probe(
            &mut frame,
            &BinProbe { probe_id: number.to_string().into(), bins: unknown.clone() },
        );
        let open = watch::Sender::new(());
        waits.push(open.subscribe());
        self.outbox.send(frame).map_err(|_| ProbeError::Gone)?;
        state.asked.insert(number, Asked { bins: unknown, open });
        Ok(Step::Wait(Some(Question { host: self, number }), waits))
    }

    /// Records the node's answer to a probe. Returns `false` if no such probe is open.
    pub(crate) fn answered(&self, answer: &BinProbeResult<'_>) -> bool {
        let mut state = self.state();
        let Some(asked) =
            answer.probe_id.parse().ok().and_then(|number: u64| state.asked.remove(&number))
        else {
            return false;
        };
        let at = Instant::now();
        // Only programs that were asked about are recorded. A program that the answer omits counts
        // as absent.
        for bin in asked.bins {
            let there = answer.bins.get(&bin).copied().unwrap_or(false);
            state.known.insert(bin, Known { there, at });
        }
        while state.known.len() > MAX_KNOWN {
            let oldest =
                state.known.iter().min_by_key(|(_, known)| known.at).map(|(bin, _)| bin.clone());
            oldest.and_then(|bin| state.known.remove(&bin));
        }
        state.updated_at_ms = Some(clock::now_ms());
        true
    }

    /// Records an event of the node, or returns the rule by which it is dropped.
    pub(crate) fn event(&self, frame: &NodeEvent<'_>) -> Result<Arc<ProviderEvent>, &'static str> {
        if !self.events.take() {
            return Err("event_flood");
        }
        let mut state = self.state();
        let data = frame.data.unwrap_or("null");
        if data.len() > MAX_EVENT_BYTES {
            return Err("event_too_large");
        }
        let data = RawJson::well_formed(data);
        let (Ok(()), Ok(data)) = (validate_capability(&frame.event), data) else {
            return Err("bad_event");
        };
        // An event may be delayed and the node's clock may be wrong, but a timestamp is never in
        // the future.
        let now_ms = clock::now_ms();
        let at_ms = frame.at_ms.filter(|at| (0..=now_ms).contains(at)).unwrap_or(now_ms);
        let event = ProviderEvent {
            provider: self.id.clone(),
            event: frame.event.to_string(),
            data,
            at_ms,
        };
        if state.recent.len() == MAX_RECENT {
            state.recent.pop_front();
        }
        let event = Arc::new(event);
        let kept = match event.data.len() {
            0..=MAX_RECENT_BYTES => Arc::clone(&event),
            _ => Arc::new(ProviderEvent { data: RawJson::null(), ..ProviderEvent::clone(&event) }),
        };
        state.recent.push_back(kept);
        Ok(event)
    }

    /// Marks the connection as ended, so that open probes fail.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.asked.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

enum Step<'a> {
    Known(BTreeMap<String, bool>),
    Wait(Option<Question<'a>>, Vec<watch::Receiver<()>>),
}

/// Removes the probe when its caller is cancelled.
struct Question<'a> {
    host: &'a Host,
    number: u64,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.host.state().asked.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_program_has_a_name_that_leads_nowhere_else(
            bins in prop::collection::vec(prop_oneof![sa_hostile::text(&["a", ".", "/", "\\", "-"]), sa_hostile::long()], 0..4),
        ) {
            match check_bins(&bins) {
                Ok(()) => {
                    prop_assert!((1..=MAX_BINS).contains(&bins.len()));
                    let one_part = |bin: &String| std::path::Path::new(bin).components().count() == 1 && bin.len() <= MAX_BIN_NAME;
                    prop_assert!(bins.iter().all(|bin| one_part(bin) && std::path::Path::new("/bin").join(bin).starts_with("/bin")));
                }
                Err(error) => prop_assert!(error.to_string().len() < sa_hostile::SHORT && !error.to_string().contains(char::is_control)),
            }
        }
    }
}
