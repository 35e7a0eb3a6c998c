//! The plan that a seed produces: the calls and the faults, with their times.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sa_socket::Liveness;

use crate::{GATEWAY, NODES};

/// The longest latency of a message.
const SLOWEST: Duration = Duration::from_millis(1_000);

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// One step of the simulation. Messages arrive at the beginning of a step; timers are more
    /// precise.
    pub(crate) tick: Duration,
    /// The shortest and the longest latency of a message.
    pub(crate) latency: (Duration, Duration),
    /// When the gateway regards a silent node as dead.
    pub(crate) liveness: Liveness,
    /// The faults, ordered by time.
    pub(crate) faults: Vec<(Duration, Fault)>,
    /// From this time on there are no faults.
    pub(crate) healed: Duration,
    pub(crate) calls: Vec<CallPlan>,
    /// The random seeds for the nodes' delays.
    pub(crate) jitter: [u64; 2],
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// All traffic between gateway and node is lost, including data in transit.
    Partition(&'static str),
    /// All traffic towards the node is lost.
    Deafen(&'static str),
    /// All traffic towards the gateway is lost.
    Mute(&'static str),
    Repair(&'static str),
    /// The network delays messages until the release.
    Hold(&'static str),
    Release(&'static str),
    Latency(&'static str, Duration),
    /// The process is killed; its machine closes the connections.
    Crash(&'static str),
    Start(&'static str),
    /// The node shuts down gracefully.
    Stop(&'static str),
    /// Opens a connection that claims the node's id, takes its calls, and answers other calls.
    Haunt(&'static str),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct CallPlan {
    pub(crate) number: u64,
    pub(crate) at: Duration,
    pub(crate) node: &'static str,
    /// How long the tool works. With `None` it works until it is cancelled.
    pub(crate) work: Option<Duration>,
    /// Whether the tool continues after a cancel.
    pub(crate) stubborn: bool,
    /// The interval between progress reports.
    pub(crate) progress: Option<Duration>,
    pub(crate) timeout: Duration,
    pub(crate) then: Then,
}

/// The behaviour of the caller.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Then {
    Wait,
    Cancel(Duration),
    Leave(Duration),
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let length = between(&mut rng, 5_000, 45_000);
        let tick = Duration::from_millis([5, 10, 10, 20, 20][rng.random_range(0..5)]);
        let most = between(&mut rng, 2, 250);
        let ping_every = between(&mut rng, 500, 5_000);
        // Long enough for the slowest answer to a ping; otherwise no connection would survive.
        let answer = ping_every * 2 + SLOWEST * 2 + tick * 4;
        let liveness =
            Liveness { ping_every, dead_after: (ping_every * rng.random_range(2..12)).max(answer) };
        let mut faults = Vec::new();
        for node in NODES {
            on_the_way_to(node, length, &mut rng, &mut faults);
        }
        while rng.random_bool(0.3) {
            let at = between(&mut rng, 0, length.as_millis() as u64);
            faults.push((at, Fault::Crash(GATEWAY)));
            faults.push(((at + between(&mut rng, 5, 8_000)).min(length), Fault::Start(GATEWAY)));
        }
        // The sort is stable: with equal times, the end of a fault stays after its beginning.
        faults.sort_by_key(|(at, _)| *at);
        let calls = calls(length, &mut rng);
        Self {
            tick,
            latency: (Duration::from_millis(1), most),
            liveness,
            faults,
            healed: length,
            calls,
            jitter: [rng.random(), rng.random()],
        }
    }
}

/// Plans the faults of one node and its link to the gateway, one after the other.
fn on_the_way_to(
    node: &'static str,
    length: Duration,
    rng: &mut StdRng,
    faults: &mut Vec<(Duration, Fault)>,
) {
    let mut at = between(rng, 0, 5_000);
    while at < length {
        // Most faults are short, and some last longer than any timeout.
        let until = at
            + if rng.random_bool(0.7) {
                between(rng, 5, 3_000)
            } else {
                between(rng, 3_000, 45_000)
            };
        let until = until.min(length);
        let (begin, end): (&[Fault], &[Fault]) = match rng.random_range(0..9) {
            0 => (&[Fault::Partition(node)], &[Fault::Repair(node)]),
            1 => (&[Fault::Deafen(node)], &[Fault::Repair(node)]),
            2 => (&[Fault::Mute(node)], &[Fault::Repair(node)]),
            3 | 4 => (&[Fault::Hold(node)], &[Fault::Release(node)]),
            5 => (&[Fault::Crash(node)], &[Fault::Start(node)]),
            // A power failure: no side is notified that the connections are lost.
            6 => (
                &[Fault::Partition(node), Fault::Crash(node)],
                &[Fault::Repair(node), Fault::Start(node)],
            ),
            7 => (&[Fault::Stop(node)], &[Fault::Start(node)]),
            _ => (&[Fault::Haunt(node)], &[]),
        };
        faults.extend(begin.iter().map(|fault| (at, *fault)));
        faults.extend(end.iter().map(|fault| (until, *fault)));
        if rng.random_bool(0.2) {
            faults.push((until, Fault::Latency(node, between(rng, 2, SLOWEST.as_millis() as u64))));
        }
        at = until + between(rng, 5, 6_000);
    }
}

fn calls(length: Duration, rng: &mut StdRng) -> Vec<CallPlan> {
    let mut at = Duration::ZERO;
    let mut calls = Vec::new();
    while at < length {
        // Some calls start together.
        if !rng.random_bool(0.3) {
            at += between(rng, 1, 1_500);
        }
        let then = match rng.random_range(0..10) {
            0..6 => Then::Wait,
            6..8 => Then::Cancel(between(rng, 0, 4_000)),
            _ => Then::Leave(between(rng, 0, 4_000)),
        };
        calls.push(CallPlan {
            number: calls.len() as u64,
            at,
            node: NODES[rng.random_range(0..NODES.len())],
            work: rng.random_bool(0.75).then(|| between(rng, 0, 3_000)),
            stubborn: rng.random_bool(0.15),
            progress: rng.random_bool(0.3).then(|| between(rng, 20, 1_000)),
            timeout: between(rng, 100, 15_000),
            then,
        });
    }
    calls
}

fn between(rng: &mut StdRng, least_ms: u64, most_ms: u64) -> Duration {
    Duration::from_millis(rng.random_range(least_ms..=most_ms))
}
