//! Clients that connect, work and leave, cleanly or in the middle of something, leave nothing
//! behind. After each round the gateway has the same connections, tasks and descriptors as before,
//! and the live bytes of its heap stop growing.
//!
//! Resident memory cannot decide that. A part of it is pages of the program's own file, which the
//! kernel loads and drops at any time. Another part is freed memory that the allocator retains for
//! a while. Both vary by tens of megabytes. So the tested program counts its live bytes and those
//! of SQLite; resident memory is printed and has only a coarse limit.
//!
//! The rounds are compared in thirds, by their medians. The first third fills structures that are
//! bounded but empty at the start: caches, pools, the recorded calls and ended sessions. From the
//! second third to the last one nothing may grow.

use std::time::Duration;

use futures_util::future::join_all;
use sa_gateway_kit::sessions::session;
use sa_gateway_kit::{Gateway, Setup, count, raise_file_limit, resident_anonymous};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::limits::churn::Churn;
use crate::limits::live_heap::{Live, LiveHeap};

/// Shortens timeouts that are minutes by default: for reconnecting clients and for sessions. Nodes
/// may be silent for longer, because on a busy machine the test may read from them late.
const QUICK: &str = "
[limits]
reconnect_wait_ms = 100
[nodes]
offline_memory_ms = 1000
dead_after_ms = 100000
[mcp]
session_idle_ms = 3000
resume_ms = 100
[sessions]
idle_ms = 20000
caller_grace_ms = 100
[channels]
max_queue_bytes = 300000
keep_messages = 1000
[journal]
keep_calls = 1000
[log]
filter = \"error\"
";

/// The number of rounds in the ordinary tests, a multiple of three.
const ROUNDS: usize = 6;

/// The allowed growth of the last third's median, for live bytes, for those of SQLite, and for
/// resident memory.
const LIVE_SLACK: u64 = 256 << 10;
const SQLITE_SLACK: u64 = 1 << 20;
const RESIDENT_SLACK: u64 = 16 << 20;

/// More data than the store's connections cache of its file, which is 24 MB in all.
const FILLERS: usize = 320;
const FILLER_BYTES: usize = 100_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_leave_nothing_behind() {
    // `cargo xtask prove` runs this for an hour.
    let time = Duration::from_secs(count("SWITCHBOARD_CHURN_SECONDS", 0) as u64);
    let width = count("SWITCHBOARD_CHURN_WIDTH", 3);
    raise_file_limit();
    let heap = LiveHeap::new();
    let gateway = heap.spawn(Setup::new().config(QUICK)).await;
    fill_the_store(&gateway).await;
    let churn = Churn::new(&gateway, width).await;
    let (base, base_threads) = (settled(&gateway, width as u64).await, threads(gateway.pid()));
    let (started, mut live, mut resident) = (Instant::now(), Vec::new(), Vec::new());
    while live.len() < ROUNDS || started.elapsed() < time {
        churn.round(&gateway, live.len(), width).await;
        back_at(&gateway, &base).await;
        live.push(heap.live(&gateway).await);
        resident.push(resident_anonymous(gateway.pid()));
    }
    if !time.is_zero() {
        abandoned_sessions_end(&gateway).await;
        back_at(&gateway, &base).await;
    }
    no_more_threads_than(&gateway, &base_threads).await;
    eprintln!(
        "{} rounds in {:?}: {base:?}, {} threads",
        live.len(),
        started.elapsed(),
        base_threads.len()
    );
    let of = |bytes: fn(&Live) -> u64| live.iter().map(bytes).collect::<Vec<_>>();
    check_growth("live bytes", &of(|live| live.rust), LIVE_SLACK);
    check_growth("live bytes of SQLite", &of(|live| live.sqlite), SQLITE_SLACK);
    check_growth("resident memory", &resident, RESIDENT_SLACK);
    gateway.stop().await;
}

/// Compares the medians of the second and the last third.
#[track_caller]
fn check_growth(what: &str, values: &[u64], slack: u64) {
    let kib: Vec<u64> = values.iter().map(|bytes| bytes / 1_024).collect();
    let medians: Vec<u64> = kib.chunks(kib.len().div_ceil(3)).map(median).collect();
    eprintln!("{what}, medians of thirds: {medians:?} KiB");
    assert!(
        medians[2] <= medians[1] + slack / 1_024,
        "{what} grows from round to round: {kib:?} KiB"
    );
}

#[test]
fn a_plateau_after_the_first_third_is_accepted() {
    check_growth(
        "it",
        &[1 << 20, 2 << 20, 4 << 20, 5 << 20, 4 << 20, 5 << 20, 4 << 20, 5 << 20, 5 << 20],
        LIVE_SLACK,
    );
}

#[test]
#[should_panic(expected = "grows from round to round")]
fn growth_without_a_plateau_is_found() {
    let rounds: Vec<u64> = (0..90).map(|round| (2 << 20) + round * (10 << 10)).collect();
    check_growth("it", &rounds, LIVE_SLACK);
}

/// Fills the page caches of the store's connections. Otherwise they would grow during the test with
/// the amount of stored data.
async fn fill_the_store(gateway: &Gateway) {
    let operator = gateway.operator();
    let filler = json!({ "type": "filler", "payload": { "filler": "x".repeat(FILLER_BYTES) } });
    for _ in 0..FILLERS {
        let reply = operator.post("/v1/channels/filler/messages", &filler).await;
        assert!(reply.status < 300, "{}", reply.text);
    }
    // Several requests at once, so that every reader connection of the store fills its cache.
    let read = |_| async {
        assert_eq!(operator.get("/v1/channels/filler/messages?limit=100").await.status, 200);
    };
    join_all((0..8).map(read)).await;
}

/// The open resources of the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Open {
    connections: u64,
    nodes: u64,
    calls: u64,
    tasks: u64,
    descriptors: usize,
    participants: u64,
    sessions: usize,
}

impl Open {
    /// Reads the counts with a new client.
    async fn of(gateway: &Gateway) -> Self {
        let operator = gateway.operator();
        let metrics = operator.get_text("/metrics").await;
        let gauge = |name: &str| -> u64 {
            let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.unwrap_or_else(|| panic!("no {name}: {metrics}")).parse().unwrap()
        };
        let channels = operator.get("/v1/channels").await.body;
        let sessions = operator.get("/v1/sessions").await.body;
        let sessions = sessions["sessions"].as_array().unwrap();
        Self {
            connections: gauge("switchboard_connections"),
            nodes: gauge("switchboard_nodes_online"),
            calls: gauge("switchboard_calls_running"),
            tasks: gauge("switchboard_tasks"),
            descriptors: std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap().count(),
            participants: channels["channels"].as_array().unwrap().iter().map(present).sum(),
            sessions: sessions.iter().filter(|session| session["state"] != "ended").count(),
        }
    }
}

fn present(channel: &Value) -> u64 {
    channel["participants"].as_u64().unwrap()
}

/// Returns the counts once they are stable, with only these participants connected.
async fn settled(gateway: &Gateway, residents: u64) -> Open {
    let mut before = Open::of(gateway).await;
    let mut same = 0;
    while same < 20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = Open::of(gateway).await;
        same = if now == before { same + 1 } else { 0 };
        before = now;
    }
    let quiet =
        (before.connections, before.nodes, before.calls, before.participants, before.sessions);
    assert_eq!(quiet, (1 + residents, 0, 0, residents, 0), "{before:?}");
    before
}

async fn back_at(gateway: &Gateway, base: &Open) {
    let until = Instant::now() + sa_gateway_kit::TIMEOUT;
    loop {
        let now = Open::of(gateway).await;
        let below = now.descriptors <= base.descriptors && now.tasks <= base.tasks;
        if below
            && (Open { descriptors: 0, tasks: 0, ..now.clone() })
                == (Open { descriptors: 0, tasks: 0, ..base.clone() })
        {
            return;
        }
        assert!(Instant::now() < until, "something stays: {now:?}, and before it was {base:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Checks that the housekeeping ends sessions without caller and agent, once a minute.
async fn abandoned_sessions_end(gateway: &Gateway) {
    for _ in 0..20 {
        session(&gateway.operator()).await;
    }
    let until = Instant::now() + Duration::from_secs(150);
    while Open::of(gateway).await.sessions > 0 {
        assert!(Instant::now() < until, "abandoned sessions stay");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Waits until idle threads of the blocking pool have ended, after ten seconds.
async fn no_more_threads_than(gateway: &Gateway, base: &[String]) {
    let until = Instant::now() + 2 * sa_gateway_kit::TIMEOUT;
    loop {
        let now = threads(gateway.pid());
        if now.len() <= base.len() {
            return;
        }
        assert!(Instant::now() < until, "threads stay: {now:?}, and before there were {base:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn threads(pid: u32) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    // A thread may end while the list is read.
    let name = |thread: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(thread.ok()?.path().join("comm"))
            .ok()
            .map(|name| name.trim().to_owned())
    };
    threads.filter_map(name).collect()
}

fn median(values: &[u64]) -> u64 {
    let mut values = values.to_vec();
    values.sort_unstable();
    values[values.len() / 2]
}
