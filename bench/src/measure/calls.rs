//! Calls to a node and back, over both front doors, beside what they are compared with.

use std::time::Duration;

use anyhow::Context as _;

use super::{Bench, median, ratio};
use crate::child::Child;
use crate::gateway::Gateway;
use crate::helper::{SUBJECT, TOOL};
use crate::load::{ARGS, Latencies, Sample, Target, calls_socket, http, nats};
use crate::nats::Nats;
use crate::report::{Report, Row};

const IN_FLIGHT: [usize; 3] = [1, 32, 256];

pub(super) async fn measure(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let gateway = Gateway::start(bench.switchboard, &bench.dir.join("calls")).await?;
    let address = gateway.address.to_string();
    let _node = Child::helper(&["node", &address], &bench.dir.join("node.log"))?;
    let tool = gateway.wait_for_tool(TOOL).await?;
    let mut echo = Child::helper(&["echo"], &bench.dir.join("echo.log"))?;
    let echo_address = echo.line("ready ").await?.parse()?;
    let nats = match bench.nats {
        Some(program) => Some(Peer::start(program, bench).await.context("cannot compare with NATS")?),
        None => None,
    };

    let body = format!("{{\"args\":{ARGS}}}");
    let token = gateway.token.clone();
    let socket = calls_socket::Target { gateway: gateway.address, token: token.clone(), tool: tool.clone() };
    let path = format!("/v1/tools/{tool}/call");
    let routed = http::Target { server: gateway.address, path, token: token.clone(), body: body.clone().into() };
    let bare = http::Target { server: echo_address, path: "/echo".into(), token, body: body.into() };
    let mut subjects = vec![
        Subject::new("call socket", Target::CallsSocket(socket)),
        Subject::new("HTTP", Target::Http(routed)),
        Subject::new("axum echo", Target::Http(bare)),
    ];
    if let Some(peer) = &nats {
        let (server, subject) = (peer.server.address, SUBJECT.to_owned());
        let target = nats::Target { server, subject, payload: ARGS.into() };
        subjects.push(Subject::new("NATS", Target::Nats(target)));
    }

    let (rounds, length) = bench.rounds();
    for in_flight in IN_FLIGHT {
        for subject in &mut subjects {
            subject.reset();
            // The first calls meet cold caches on both sides.
            subject.target.load(in_flight, length / 4).await?;
        }
        for _ in 0..rounds {
            for subject in &mut subjects {
                let before = gateway.cpu_time()?;
                let sample = subject.target.load(in_flight, length).await?;
                subject.add(&sample, gateway.cpu_time()?.saturating_sub(before));
            }
        }
        let [socket, routed, bare, ..] = &subjects[..] else { unreachable!("there are at least three") };
        let nats = subjects.get(3);
        report.row(socket.routed(in_flight, &[nats], (256, 0.4)));
        report.row(routed.routed(in_flight, &[Some(bare), nats], (32, 0.5)));
        report.row(bare.row(in_flight));
        report.rows(nats.map(|nats| nats.row(in_flight)));
    }
    gateway.stop().await
}

struct Peer {
    server: Nats,
    _responder: Child,
}

impl Peer {
    async fn start(program: &std::path::Path, bench: &Bench<'_>) -> anyhow::Result<Self> {
        let server = Nats::start(program, bench.dir, false).await?;
        let address = server.address.to_string();
        let mut responder = Child::helper(&["responder", &address], &bench.dir.join("responder.log"))?;
        responder.line("ready").await?;
        Ok(Self { server, _responder: responder })
    }
}

/// One of the things that take turns, and what was measured of it at one number in flight.
struct Subject {
    name: &'static str,
    target: Target,
    rates: Vec<f64>,
    latencies: Latencies,
    /// Of the gateway, while this was under load.
    cpu: Duration,
}

impl Subject {
    fn new(name: &'static str, target: Target) -> Self {
        Self { name, target, rates: Vec::new(), latencies: Latencies::new(), cpu: Duration::ZERO }
    }

    fn reset(&mut self) {
        *self = Self::new(self.name, self.target.clone());
    }

    fn add(&mut self, sample: &Sample, cpu: Duration) {
        self.rates.push(sample.rate());
        self.latencies.add(&sample.latencies);
        self.cpu += cpu;
    }

    fn row(&self, in_flight: usize) -> Row {
        Row::new(format!("{}, {in_flight} in flight", self.name), median(self.rates.clone()), "/s")
            .latencies(&self.latencies)
    }

    /// The row of a way through the gateway. The budget is for one number in flight, against the first of `others`.
    fn routed(&self, in_flight: usize, others: &[Option<&Self>], (budgeted, least): (usize, f64)) -> Row {
        let mut row = self.row(in_flight).cpu_us(self.cpu.as_secs_f64() * 1e6 / self.latencies.count() as f64);
        for other in others.iter().flatten() {
            row = row.beside(other.name, ratio(&self.rates, &other.rates));
        }
        if let Some(first) = others.first().copied().flatten()
            && in_flight == budgeted
        {
            row = row.at_least(ratio(&self.rates, &first.rates), least, &format!("of {}", first.name));
        }
        row
    }
}
