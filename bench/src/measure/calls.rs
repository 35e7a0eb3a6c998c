//! Measures calls to a node over the WebSocket and HTTP, compared with other servers.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use super::{Bench, median, ratio};
use crate::child::Child;
use crate::gateway::Gateway;
use crate::halves::Halves;
use crate::helper::{SUBJECT, TOOL};
use crate::load::{ARGS, Latencies, Sample, Target, calls_socket, http, nats};
use crate::nats::{Keep, Nats};
use crate::report::{Report, Row};

const IN_FLIGHT: [usize; 3] = [1, 32, 256];

/// One of the alternating targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Subject {
    Socket,
    Http,
    Axum,
    Nats,
}

impl Subject {
    fn name(self) -> &'static str {
        match self {
            Self::Socket => "call socket",
            Self::Http => "HTTP",
            Self::Axum => "axum echo",
            Self::Nats => "NATS",
        }
    }

    fn is_routed(self) -> bool {
        matches!(self, Self::Socket | Self::Http)
    }

    /// Returns the budget, if there is one: the number in flight, the reference, and the minimum
    /// ratio.
    fn budget(self) -> Option<(usize, Self, f64)> {
        match self {
            Self::Socket => Some((256, Self::Nats, 0.4)),
            Self::Http => Some((32, Self::Axum, 0.5)),
            Self::Axum | Self::Nats => None,
        }
    }

    /// Returns the references for the reported ratios.
    fn others(self) -> &'static [Self] {
        match self {
            Self::Socket => &[Self::Nats],
            Self::Http => &[Self::Axum, Self::Nats],
            Self::Axum | Self::Nats => &[],
        }
    }
}

pub(super) async fn measure(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let halves = Halves::new(bench.args.anywhere)?;
    halves.with_what_is_measured()?;
    let gateway = Gateway::start(&bench.args.switchboard, &bench.dir.join("calls")).await?;
    let mut echo = Child::helper(&["echo"], &bench.dir.join("echo.log"))?;
    let echo_address = echo.line("ready ").await?.parse()?;
    let nats = match bench.nats {
        Some(program) => Some(
            Nats::start(program, bench.dir, Keep::Nothing)
                .await
                .context("cannot compare with NATS")?,
        ),
        None => None,
    };
    halves.with_its_users()?;
    let address = gateway.address.to_string();
    let _node = Child::helper(&["node", &address], &bench.dir.join("node.log"))?;
    let tool = gateway.wait_for_tool(TOOL).await?;
    let _responder = match &nats {
        Some(nats) => Some(responder(nats, bench.dir).await?),
        None => None,
    };

    let token = gateway.token.clone();
    let path = format!("/v1/tools/{tool}/call");
    let body = format!("{{\"args\":{ARGS}}}");
    let routed = http::Target {
        server: gateway.address,
        path,
        token: token.clone(),
        body: body.into(),
        headers: Vec::new(),
    };
    let bare = http::Target { server: echo_address, path: "/echo".into(), ..routed.clone() };
    let socket = calls_socket::Target { gateway: gateway.address, token, tool };
    let mut turns = vec![
        Turn::new(Subject::Socket, Target::CallsSocket(socket)),
        Turn::new(Subject::Http, Target::Http(routed)),
        Turn::new(Subject::Axum, Target::Http(bare)),
    ];
    if let Some(nats) = &nats {
        let (server, subject) = (nats.address, SUBJECT.to_owned());
        let target =
            nats::Target { server, subject, payload: ARGS.into(), done: nats::Done::Answered };
        turns.push(Turn::new(Subject::Nats, Target::Nats(target)));
    }
    turns
        .retain(|turn| bench.args.subject.is_empty() || bench.args.subject.contains(&turn.subject));

    let (rounds, length) = bench.rounds();
    let in_flight =
        if bench.args.in_flight.is_empty() { &IN_FLIGHT[..] } else { &bench.args.in_flight };
    for &in_flight in in_flight {
        for turn in &mut turns {
            turn.reset();
            // The first calls meet cold caches on both sides.
            turn.target.load(in_flight, length / 4).await?;
        }
        for _ in 0..rounds {
            for turn in &mut turns {
                let before = gateway.cpu_time()?;
                let sample = turn.target.load(in_flight, length).await?;
                turn.add(&sample, gateway.cpu_time()?.saturating_sub(before));
            }
        }
        for turn in &turns {
            report.row(turn.row(in_flight, &turns));
        }
    }
    gateway.stop().await
}

/// Starts the program that answers NATS requests.
async fn responder(nats: &Nats, dir: &Path) -> anyhow::Result<Child> {
    let mut responder =
        Child::helper(&["responder", &nats.address.to_string()], &dir.join("responder.log"))?;
    responder.line("ready").await?;
    Ok(responder)
}

/// The measurements of one target at one number in flight.
struct Turn {
    subject: Subject,
    target: Target,
    rates: Vec<f64>,
    latencies: Latencies,
    /// CPU time of the gateway while this target was under load.
    cpu: Duration,
}

impl Turn {
    fn new(subject: Subject, target: Target) -> Self {
        Self {
            subject,
            target,
            rates: Vec::new(),
            latencies: Latencies::new(),
            cpu: Duration::ZERO,
        }
    }

    fn reset(&mut self) {
        *self = Self::new(self.subject, self.target.clone());
    }

    fn add(&mut self, sample: &Sample, cpu: Duration) {
        self.rates.push(sample.rate());
        self.latencies.add(&sample.latencies);
        self.cpu += cpu;
    }

    fn row(&self, in_flight: usize, all: &[Self]) -> Row {
        let what = format!("{}, {in_flight} in flight", self.subject.name());
        let mut row = Row::new(what, median(self.rates.clone()), "/s").latencies(&self.latencies);
        if self.subject.is_routed() {
            row = row.cpu_us(self.cpu.as_secs_f64() * 1e6 / self.latencies.count() as f64);
        }
        for other in self
            .subject
            .others()
            .iter()
            .filter_map(|other| all.iter().find(|turn| turn.subject == *other))
        {
            let ratio = ratio(&self.rates, &other.rates);
            row = row.beside(other.subject.name(), ratio);
            if let Some((budgeted, whom, least)) = self.subject.budget()
                && (budgeted, whom) == (in_flight, other.subject)
            {
                row = row.at_least(ratio, least, &format!("of {}", whom.name()));
            }
        }
        row
    }
}
