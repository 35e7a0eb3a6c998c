//! Measures the memory of a connected, idle node.

use std::time::Duration;

use super::Bench;
use crate::child::Child;
use crate::gateway::Gateway;
use crate::proc;
use crate::report::{Report, Row};

const KB: f64 = 1024.0;
const BUDGET_KB: f64 = 8.0;
const WARM: usize = 200;

pub(super) async fn measure(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let counts: &[usize] = if bench.args.quick { &[1_000] } else { &[1_000, 10_000] };
    let gateway = Gateway::start(&bench.args.switchboard, &bench.dir.join("memory")).await?;
    let mut nodes =
        Child::helper(&["idle", &gateway.address.to_string()], &bench.dir.join("idle.log"))?;
    // Connects some nodes first, so that one-time costs of the gateway are not counted.
    let before = connected(&mut nodes, &gateway, WARM).await?;
    for &count in counts {
        if count as u64 + 200 > proc::file_limit() {
            report.note(format!(
                "{count} idle nodes need more file descriptors than {}; increase `ulimit -n`",
                proc::file_limit()
            ));
            break;
        }
        let taken = connected(&mut nodes, &gateway, count).await? as f64 - before as f64;
        let each = taken / KB / (count - WARM) as f64;
        let row = Row::new(format!("resident memory of an idle node, of {count}"), each, "KB");
        report.row(row.at_most(each, BUDGET_KB, "KB"));
    }
    Ok(())
}

/// Returns the gateway's memory with this number of nodes, once it has settled.
pub(super) async fn connected(
    nodes: &mut Child,
    gateway: &Gateway,
    count: usize,
) -> anyhow::Result<u64> {
    nodes.tell(&count.to_string()).await?;
    nodes.line(&format!("ready {count}")).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    gateway.resident()
}
