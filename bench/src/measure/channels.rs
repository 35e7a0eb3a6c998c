//! Measures channels against NATS: stored and unstored messages, one publisher with many readers,
//! history, calls between participants, and the cost of an idle participant.

use std::time::Duration;

use anyhow::Context as _;

use super::{Bench, median, ratio};
use crate::child::Child;
use crate::gateway::Gateway;
use crate::helper::SUBJECT;
use crate::load::channel::{self, What};
use crate::load::crowd::{Crowd, Place};
use crate::load::{ARGS, Latencies, Target, nats};
use crate::nats::{JetStream, Keep, Nats};
use crate::proc;
use crate::report::{Report, Row};

mod history;
mod idle;

const IN_FLIGHT: [usize; 3] = [1, 16, 128];

pub(super) async fn measure(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    publish(bench, report).await?;
    calls(bench, report).await?;
    fan_out(bench, report).await?;
    history::measure(bench, report).await?;
    idle::measure(bench, report).await
}

/// One of the alternating targets.
struct Turn {
    name: &'static str,
    target: Target,
    rates: Vec<f64>,
    latencies: Latencies,
    /// CPU time of the gateway under this load, for targets that use the gateway.
    cpu: Option<Duration>,
}

impl Turn {
    fn ours(name: &'static str, target: channel::Target) -> Self {
        let (rates, latencies) = (Vec::new(), Latencies::new());
        Self { name, target: Target::Channel(target), rates, latencies, cpu: Some(Duration::ZERO) }
    }

    fn theirs(name: &'static str, target: Target) -> Self {
        Self { name, target, rates: Vec::new(), latencies: Latencies::new(), cpu: None }
    }
}

/// Puts all targets under load in alternation and reports each one. For targets that use the
/// gateway, the report has their ratios to the others. The first target may have a budget: a number
/// in flight, and a minimum ratio to the second target.
async fn take_turns(
    bench: &Bench<'_>,
    report: &mut Report,
    gateway: &Gateway,
    turns: &mut [Turn],
    in_flight: usize,
    budget: Option<(usize, f64)>,
) -> anyhow::Result<()> {
    let (rounds, length) = bench.rounds();
    for turn in &mut *turns {
        (turn.rates, turn.latencies) = (Vec::new(), Latencies::new());
        turn.cpu = turn.cpu.map(|_| Duration::ZERO);
        turn.target.load(in_flight, length / 4).await?;
    }
    for _ in 0..rounds.min(14) {
        for turn in &mut *turns {
            let before = gateway.cpu_time()?;
            let sample = turn.target.load(in_flight, length).await?;
            turn.rates.push(sample.rate());
            turn.latencies.add(&sample.latencies);
            turn.cpu = turn
                .cpu
                .map(|cpu| cpu + gateway.cpu_time().unwrap_or_default().saturating_sub(before));
        }
    }
    for (place, turn) in turns.iter().enumerate() {
        let what = format!("{}, {in_flight} in flight", turn.name);
        let mut row = Row::new(what, median(turn.rates.clone()), "/s").latencies(&turn.latencies);
        if let Some(cpu) = turn.cpu {
            row = row.cpu_us(cpu.as_secs_f64() * 1e6 / turn.latencies.count().max(1) as f64);
            for other in turns.iter().filter(|other| other.cpu.is_none()) {
                row = row.beside(other.name, ratio(&turn.rates, &other.rates));
            }
        }
        if let (0, Some((at, least)), Some(second)) = (place, budget, turns.get(1))
            && at == in_flight
            && second.cpu.is_none()
        {
            row = row.at_least(
                ratio(&turn.rates, &second.rates),
                least,
                &format!("times {}", second.name),
            );
        }
        report.row(row);
    }
    Ok(())
}

async fn publish(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let gateway = Gateway::start(&bench.args.switchboard, &bench.dir.join("channels")).await?;
    let token = gateway.participant("writer").await?;
    let target = |room: &str, persist| channel::Target {
        gateway: gateway.address,
        token: token.clone(),
        channel: room.into(),
        what: What::Note { persist },
    };
    let mut stored = vec![Turn::ours("channel, stored", target("stored", true))];
    let mut passing = vec![Turn::ours("channel, not stored", target("passing", false))];
    let mut servers = Vec::new();
    if let Some(program) = bench.nats {
        for (name, keep) in
            [("JetStream, synced", Keep::Synced), ("JetStream, not synced", Keep::Unsynced)]
        {
            let server =
                JetStream::start(program, bench.dir, keep, "bench.channel", ARGS.into()).await;
            let JetStream { server, target } = server.context("cannot compare with JetStream")?;
            stored.push(Turn::theirs(name, target));
            servers.push(server);
        }
        let server = Nats::start(program, bench.dir, Keep::Nothing).await?;
        let (subject, done) = ("bench.own".to_owned(), nats::Done::Back);
        let target = nats::Target { server: server.address, subject, payload: ARGS.into(), done };
        passing.push(Turn::theirs("NATS, own message back", Target::Nats(target)));
        servers.push(server);
    }
    for in_flight in IN_FLIGHT {
        take_turns(bench, report, &gateway, &mut stored, in_flight, Some((128, 10.0))).await?;
    }
    for in_flight in IN_FLIGHT {
        take_turns(bench, report, &gateway, &mut passing, in_flight, None).await?;
    }
    gateway.stop().await
}

/// Measures calls from one participant to another's method.
async fn calls(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let gateway = Gateway::start(&bench.args.switchboard, &bench.dir.join("channel-calls")).await?;
    let (caller, provider) =
        (gateway.participant("caller").await?, gateway.participant("provider").await?);
    let arguments = ["provider", &gateway.address.to_string(), &provider, "room"];
    let mut providing = Child::helper(&arguments, &bench.dir.join("provider.log"))?;
    providing.line("ready").await?;
    let target = |persist| channel::Target {
        gateway: gateway.address,
        token: caller.clone(),
        channel: "room".into(),
        what: What::Call { provider: "provider".into(), persist },
    };
    let mut turns = vec![
        Turn::ours("channel method call", target(false)),
        Turn::ours("channel method call, stored", target(true)),
    ];
    let mut kept = None;
    if let Some(program) = bench.nats {
        let server = Nats::start(program, bench.dir, Keep::Nothing).await?;
        let address = server.address.to_string();
        let mut responder =
            Child::helper(&["responder", &address], &bench.dir.join("channel-responder.log"))?;
        responder.line("ready").await?;
        let (subject, done) = (SUBJECT.to_owned(), nats::Done::Answered);
        let target = nats::Target { server: server.address, subject, payload: ARGS.into(), done };
        turns.push(Turn::theirs("NATS request", Target::Nats(target)));
        kept = Some((server, responder));
    }
    for in_flight in [1, 64] {
        take_turns(bench, report, &gateway, &mut turns, in_flight, None).await?;
    }
    drop(kept);
    gateway.stop().await
}

/// Measures one publisher with many readers. The two sides connect one after the other, because a
/// machine may have too few file descriptors for both at once.
async fn fan_out(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let (rounds, length) = bench.rounds();
    for size in if bench.args.quick { &[100, 1_000][..] } else { &[1_000, 10_000] } {
        let size = *size;
        if size as u64 + 200 > proc::file_limit() {
            report.note(format!(
                "{size} readers need more file descriptors than {}; increase `ulimit -n`",
                proc::file_limit()
            ));
            break;
        }
        let gateway =
            Gateway::start(&bench.args.switchboard, &bench.dir.join(format!("fan-out-{size}")))
                .await?;
        let (address, token) = (gateway.address, gateway.participant("crowd").await?);
        let server = match bench.nats {
            Some(program) => Some(Nats::start(program, bench.dir, Keep::Nothing).await?),
            None => None,
        };
        let ours = Place::Channel { gateway: address, token, channel: "room".into() };
        let theirs = server.as_ref().map(|server| Place::Nats(server.address));
        let mut latencies = [Latencies::new(), Latencies::new()];
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..rounds.min(14) {
            for (at, place) in [Some(&ours), theirs.as_ref()].into_iter().enumerate() {
                let Some(place) = place else { continue };
                let sample = Crowd::connect(place, size).await?.load(length).await?;
                rates[at].push(sample.rate() * size as f64);
                latencies[at].add(&sample.latencies);
            }
        }
        let row =
            Row::new(format!("channel, 1 to {size}, arrivals"), median(rates[0].clone()), "/s");
        let row = row.latencies(&latencies[0]);
        report.row(if theirs.is_some() {
            row.beside("NATS", ratio(&rates[0], &rates[1]))
        } else {
            row
        });
        if theirs.is_some() {
            let row =
                Row::new(format!("NATS, 1 to {size}, arrivals"), median(rates[1].clone()), "/s");
            report.row(row.latencies(&latencies[1]));
        }
    }
    Ok(())
}
