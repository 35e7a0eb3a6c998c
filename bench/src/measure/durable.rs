//! Measures appends that are on disk when they are acknowledged.
//!
//! The simplest durable log, with one `write` and one `fdatasync` for each entry, shows the speed
//! of the disk. NATS JetStream with `sync_interval: always` gives the same guarantee as the store.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use sa_core::store::{Log as _, NewEntry};
use sa_store::{OpenOptions, Store};

use super::{Bench, median, ratio};
use crate::load::{self, Latencies, Sample};
use crate::nats::{JetStream, Keep};
use crate::proc;
use crate::report::{Report, Row};

const IN_FLIGHT: [usize; 3] = [1, 16, 128];
const BODY: usize = 400;
const SUBJECT: &str = "bench.log";
static BODY_BYTES: [u8; BODY] = [7; BODY];

pub(super) async fn measure(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let (rounds, length) = bench.rounds();
    let rounds = rounds.min(14);
    let jetstream = match bench.nats {
        Some(program) => Some(
            JetStream::start(
                program,
                bench.dir,
                Keep::Synced,
                SUBJECT,
                Bytes::from_static(&BODY_BYTES),
            )
            .await
            .context("cannot compare with JetStream")?,
        ),
        None => None,
    };
    for in_flight in IN_FLIGHT {
        let store =
            Store::open(OpenOptions::new(bench.dir.join(format!("durable-{in_flight}.db"))))?;
        let (mut plain, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        let mut latencies = Latencies::new();
        for round in 0..rounds {
            plain.push(plain_log(bench.dir, length)?);
            let sample = append(&store, round, in_flight, length).await?;
            ours.push(sample.rate());
            latencies.add(&sample.latencies);
            if let Some(jetstream) = &jetstream {
                theirs.push(jetstream.target.load(in_flight, length).await?.rate());
            }
        }
        let stats = store.stats();
        store.shutdown().await?;
        let what = format!("durable appends, {in_flight} in flight");
        let mut row = Row::new(what, median(ours.clone()), "/s").latencies(&latencies);
        row = row.beside("write + fdatasync each", ratio(&ours, &plain));
        if jetstream.is_some() {
            row = row.beside("JetStream", ratio(&ours, &theirs));
            if in_flight == 128 {
                row = row.at_least(ratio(&ours, &theirs), 10.0, "times JetStream");
            }
        }
        report.row(
            row.note(format!("{:.1} entries a sync", stats.entries as f64 / stats.commits as f64)),
        );
        if jetstream.is_some() {
            report.row(Row::new(
                format!("JetStream, synced, {in_flight} in flight"),
                median(theirs),
                "/s",
            ));
        }
    }
    for (what, rate) in [("as fast as it goes", None), ("50,000 a second", Some(50_000))] {
        let (rate, cpu_us) = unawaited(bench.dir, rate, length * 2).await?;
        report.row(
            Row::new(format!("entries without a waiter, {what}"), rate, "/s")
                .note(format!("{cpu_us:.1} µs of CPU each")),
        );
    }
    Ok(())
}

fn plain_log(dir: &Path, length: Duration) -> anyhow::Result<f64> {
    let mut file = File::create(dir.join("plain"))?;
    let (body, start, mut count) = ([7; BODY], Instant::now(), 0_u32);
    while start.elapsed() < length {
        file.write_all(&body)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

async fn append(
    store: &Store,
    round: usize,
    in_flight: usize,
    length: Duration,
) -> anyhow::Result<Sample> {
    let lanes = (0..in_flight).map(|task| (store.clone(), (round * 256 + task) as u64)).collect();
    let drive = |(store, task): (Store, u64), end: Instant| async move {
        let mut latencies = Latencies::new();
        let mut n = 0;
        while Instant::now() < end {
            let start = Instant::now();
            store.append(entry(task, n)).await?;
            latencies.record(start);
            n += 1;
        }
        Ok(latencies)
    };
    load::run(lanes, length, drive).await
}

/// Measures appends without waiting, as the journal does. The cost that matters here is CPU time.
async fn unawaited(dir: &Path, rate: Option<u64>, length: Duration) -> anyhow::Result<(f64, f64)> {
    let store = Store::open(OpenOptions::new(
        dir.join(format!("unawaited-{}.db", rate.unwrap_or_default())),
    ))?;
    let me = std::process::id();
    let (start, cpu, mut n) = (Instant::now(), proc::cpu_time(me)?, 0_u64);
    while start.elapsed() < length {
        let due = rate.map_or(n + 500, |rate| (start.elapsed().as_secs_f64() * rate as f64) as u64);
        while n < due {
            let entry = entry(n >> 20, n);
            store.record(&entry.stream, entry.key.as_deref(), &entry.body);
            n += 1;
        }
        if rate.is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        } else if let Some(pace) = store.backpressure() {
            pace.await;
        }
    }
    store.shutdown().await?;
    let cpu = proc::cpu_time(me)?.saturating_sub(cpu);
    Ok((n as f64 / start.elapsed().as_secs_f64(), cpu.as_secs_f64() * 1e6 / n as f64))
}

fn entry(task: u64, n: u64) -> NewEntry {
    // Like UUIDv7: first the time, then the unique part.
    let ms = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis() as u64;
    let (high, low) = (ms >> 16, ms & 0xffff);
    let key = format!("{high:08x}-{low:04x}-7{:03x}-8{:03x}-{n:012x}", n & 0xfff, task & 0xfff);
    NewEntry {
        stream: Arc::from("calls"),
        key: Some(key.into()),
        body: Bytes::from_static(&BODY_BYTES),
    }
}
