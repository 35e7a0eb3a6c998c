//! Measures how fast the store appends: `cargo run --profile quick-release -p sa-store --example append_rate [dir]`.
//!
//! Durable appends are compared with the plainest durable log there is, one `write` and one `fdatasync` for each
//! entry, on the same file system in the same run; entries that nobody waits for are measured in CPU time.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sa_core::store::{Log, NewEntry};
use sa_store::{OpenOptions, Store};

const BODY: usize = 400;
const SECONDS: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() {
    let base = std::env::args().nth(1).map_or_else(std::env::temp_dir, Into::into);
    let dir = tempfile::tempdir_in(base).expect("a directory to measure in");
    let plain = plain_log(dir.path());
    println!("{:<44} {:>10} {:>8} {:>12}", "what", "entries/s", "ratio", "entries/sync");
    println!("{:<44} {plain:>10.0} {:>8} {:>12}", "write and fdatasync for each entry", 1, 1);
    for in_flight in [1, 16, 128] {
        let (rate, shared) = durable(dir.path(), in_flight).await;
        let what = format!("store, durable, {in_flight} in flight");
        println!("{what:<44} {rate:>10.0} {:>8.1} {shared:>12.1}", rate / plain);
    }
    for (what, rate) in [("as fast as it goes", None), ("at 50,000/s", Some(50_000))] {
        let measured = background(dir.path(), rate).await;
        println!(
            "{:<44} {:>10.0} {:>8.1} {:>12.0}   {:.2} µs CPU/entry, {:.0} % of a core",
            format!("store, nobody waits, {what}"),
            measured.rate,
            measured.rate / plain,
            measured.shared,
            measured.cpu_us,
            measured.rate * measured.cpu_us / 10_000.0,
        );
    }
    let (elapsed, held) = opening(dir.path()).await;
    println!("opening a store with {held} entries takes {elapsed:.1?}");
}

fn plain_log(dir: &Path) -> f64 {
    let mut file = File::create(dir.join("plain")).expect("a file");
    let (body, start, mut count) = ([7; BODY], Instant::now(), 0_u32);
    while start.elapsed() < SECONDS {
        file.write_all(&body).expect("written");
        file.sync_data().expect("synced");
        count += 1;
    }
    f64::from(count) / start.elapsed().as_secs_f64()
}

async fn durable(dir: &Path, in_flight: usize) -> (f64, f64) {
    let store = Store::open(OpenOptions::new(dir.join(format!("durable-{in_flight}.db")))).expect("a store");
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..in_flight {
        let store = store.clone();
        tasks.spawn(async move {
            let (stream, body) = (Arc::<str>::from("calls"), Bytes::from(vec![7; BODY]));
            let mut n = 0_u64;
            while start.elapsed() < SECONDS {
                let key = Some(key(task as u64, n));
                store.append(NewEntry { stream: stream.clone(), key, body: body.clone() }).await.expect("kept");
                n += 1;
            }
            n
        });
    }
    let total: u64 = tasks.join_all().await.into_iter().sum();
    let elapsed = start.elapsed().as_secs_f64();
    let stats = store.stats();
    store.shutdown().await.expect("a clean end");
    (total as f64 / elapsed, stats.entries as f64 / stats.commits as f64)
}

struct Background {
    rate: f64,
    shared: f64,
    cpu_us: f64,
}

/// How long it takes to open the store that the fast run has filled, and how many entries it holds.
async fn opening(dir: &Path) -> (Duration, u64) {
    let start = Instant::now();
    let store = Store::open(OpenOptions::new(dir.join("background-None.db"))).expect("a store");
    let elapsed = start.elapsed();
    let held = store.bounds("calls").await.expect("bounds").last;
    store.shutdown().await.expect("a clean end");
    (elapsed, held)
}

async fn background(dir: &Path, rate: Option<u64>) -> Background {
    let store = Store::open(OpenOptions::new(dir.join(format!("background-{rate:?}.db")))).expect("a store");
    let (stream, body) = (Arc::<str>::from("calls"), Bytes::from(vec![7; BODY]));
    let (start, cpu, mut n) = (Instant::now(), cpu_time(), 0_u64);
    while if rate.is_some() { start.elapsed() < SECONDS } else { n < 1_000_000 } {
        let due = rate.map_or(n + 500, |rate| (start.elapsed().as_secs_f64() * rate as f64) as u64);
        while n < due {
            let key = Some(key(n >> 20, n));
            store.record(NewEntry { stream: stream.clone(), key, body: body.clone() });
            n += 1;
        }
        if rate.is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let path = store.clone();
    store.shutdown().await.expect("a clean end");
    let stats = path.stats();
    let cpu = cpu_time().saturating_sub(cpu);
    Background {
        rate: n as f64 / start.elapsed().as_secs_f64(),
        shared: stats.entries as f64 / stats.commits as f64,
        cpu_us: cpu.as_secs_f64() * 1e6 / n as f64,
    }
}

/// As UUIDv7: the time first, then what differs.
fn key(task: u64, n: u64) -> Arc<str> {
    let ms = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_millis() as u64;
    let (high, low) = (ms >> 16, ms & 0xffff);
    format!("{high:08x}-{low:04x}-7{:03x}-8{:03x}-{n:012x}", n & 0xfff, task & 0xfff).into()
}

/// CPU time of this process so far, of all its threads.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc");
    let after_name = stat.rsplit_once(')').expect("a name").1;
    let ticks: u64 = after_name.split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 10)
}
