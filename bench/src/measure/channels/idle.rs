//! Measures the cost of an idle participant.

use std::time::Duration;

use crate::child::Child;
use crate::gateway::Gateway;
use crate::load::crowd::{Crowd, Place};
use crate::measure::Bench;
use crate::measure::memory::connected;
use crate::nats::{Keep, Nats};
use crate::proc;
use crate::report::{Report, Row};

const KB: f64 = 1024.0;
const BUDGET_KB: f64 = 8.0;
const WARM: usize = 200;
/// Participants per channel. Each participant receives every join event, so ten thousand in one
/// channel would first receive fifty million events.
const PER_ROOM: usize = 100;

pub(super) async fn measure(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let counts: &[usize] = if bench.args.quick { &[1_000] } else { &[1_000, 10_000] };
    let gateway =
        Gateway::start(&bench.args.switchboard, &bench.dir.join("idle-participants")).await?;
    let mut tokens = String::new();
    for number in 0..PER_ROOM {
        tokens += &gateway.participant(&format!("idle{number}")).await?;
        tokens.push('\n');
    }
    let file = bench.dir.join("idle-tokens");
    std::fs::write(&file, tokens)?;
    let arguments = ["idle-participants", &gateway.address.to_string(), &file.to_string_lossy()];
    let mut participants = Child::helper(&arguments, &bench.dir.join("idle-participants.log"))?;
    let before = connected(&mut participants, &gateway, WARM).await?;
    for &count in counts {
        if count as u64 + 200 > proc::file_limit() {
            report.note(format!(
                "{count} participants need more file descriptors than {}",
                proc::file_limit()
            ));
            break;
        }
        let taken = connected(&mut participants, &gateway, count).await? as f64 - before as f64;
        let each = taken / KB / (count - WARM) as f64;
        let mut row =
            Row::new(format!("resident memory of an idle participant, of {count}"), each, "KB");
        if let Some(program) = bench.nats {
            let theirs = subscriber(program, bench, count).await?;
            row = row.beside("an idle NATS subscriber", each / theirs);
        }
        report.row(row.at_most(each, BUDGET_KB, "KB"));
    }
    Ok(())
}

/// Returns the memory for each of `count` NATS subscribers, in KB.
async fn subscriber(
    program: &std::path::Path,
    bench: &Bench<'_>,
    count: usize,
) -> anyhow::Result<f64> {
    let server = Nats::start(program, bench.dir, Keep::Nothing).await?;
    let settle = || tokio::time::sleep(Duration::from_secs(1));
    let place = Place::Nats(server.address);
    let _warm = Crowd::connect(&place, WARM).await?;
    settle().await;
    let before = server.resident()?;
    let _crowd = Crowd::connect(&place, count - WARM).await?;
    settle().await;
    Ok(server.resident()?.saturating_sub(before) as f64 / KB / (count - WARM) as f64)
}
