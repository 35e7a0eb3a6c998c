//! Measures reading a channel's history from the beginning.

use std::time::Instant;

use anyhow::Context as _;
use futures_util::{SinkExt as _, StreamExt as _};

use crate::gateway::Gateway;
use crate::load::{ARGS, channel};
use crate::measure::{Bench, median, ratio};
use crate::nats::{self, JetStream, Keep};
use crate::report::{Report, Row};

const SUBJECT: &str = "bench.history";
/// Messages in flight while the history is written.
const AT_ONCE: usize = 1_000;

pub(super) async fn measure(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let count = if bench.args.quick { 5_000 } else { 100_000 };
    let gateway = Gateway::start(&bench.args.switchboard, &bench.dir.join("history")).await?;
    let token = gateway.participant("writer").await?;
    fill(&gateway, &token, count).await?;
    let jetstream = match bench.nats {
        Some(program) => Some(
            fill_jetstream(bench, program, count).await.context("cannot compare with JetStream")?,
        ),
        None => None,
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let start = Instant::now();
        replay(&gateway, &token, count).await?;
        ours.push(count as f64 / start.elapsed().as_secs_f64());
        if let Some(jetstream) = &jetstream {
            let start = Instant::now();
            jetstream.replay(count).await?;
            theirs.push(count as f64 / start.elapsed().as_secs_f64());
        }
    }
    let row = Row::new(format!("channel, replay of {count}"), median(ours.clone()), "/s");
    let row = row.note(format!("{:.2} s in all", count as f64 / median(ours.clone())));
    report.row(if jetstream.is_some() {
        row.beside("JetStream", ratio(&ours, &theirs))
    } else {
        row
    });
    if jetstream.is_some() {
        report.row(Row::new(format!("JetStream, replay of {count}"), median(theirs), "/s"));
    }
    gateway.stop().await
}

async fn fill(gateway: &Gateway, token: &str, count: usize) -> anyhow::Result<()> {
    let mut socket = channel::connect(gateway.address, token, "room", "").await?;
    for first in (0..count).step_by(AT_ONCE) {
        let share = AT_ONCE.min(count - first);
        for _ in 0..share {
            socket.feed(channel::publish("note", ARGS, true, 1)).await?;
        }
        socket.flush().await?;
        let mut stored = 0;
        while stored < share {
            let message = socket.next().await.context("the gateway closed the connection")??;
            stored +=
                usize::from(message.to_text().is_ok_and(|text| text.ends_with(",\"ref\":1}")));
        }
    }
    Ok(())
}

/// Connects from the first message and reads until the end of the replay.
async fn replay(gateway: &Gateway, token: &str, count: usize) -> anyhow::Result<()> {
    let mut socket = channel::open(gateway.address, token, "room", "&sinceId=0").await?;
    let mut notes = 0;
    loop {
        let message = socket.next().await.context("the gateway closed the connection")??;
        let Ok(text) = message.to_text() else { continue };
        if text.starts_with("{\"kind\":\"ready\"") {
            anyhow::ensure!(notes == count, "{notes} messages instead of {count}");
            return Ok(());
        }
        notes += usize::from(text.contains("\"type\":\"note\""));
    }
}

async fn fill_jetstream(
    bench: &Bench<'_>,
    program: &std::path::Path,
    count: usize,
) -> anyhow::Result<JetStream> {
    let jetstream =
        JetStream::start(program, bench.dir, Keep::Unsynced, SUBJECT, ARGS.into()).await?;
    let client = nats::connect(jetstream.server.address).await?;
    for first in (0..count).step_by(AT_ONCE) {
        let requests =
            (first..count.min(first + AT_ONCE)).map(|_| client.request(SUBJECT, ARGS.into()));
        futures_util::future::try_join_all(requests).await?;
    }
    Ok(jetstream)
}
