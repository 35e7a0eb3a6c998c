//! Measures the start time of a gateway, and its resources before the first use.

use std::time::Duration;

use super::{Bench, median};
use crate::gateway::Gateway;
use crate::report::{Report, Row};

const BUDGET_MS: f64 = 150.0;
const BUDGET_MB: f64 = 25.0;

pub(super) async fn measure(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let times = if bench.args.quick { 5 } else { 20 };
    let (mut first, mut again) = (Vec::new(), Vec::new());
    let mut resident = Vec::new();
    for number in 0..times {
        let dir = bench.dir.join(format!("start-{number}"));
        // In an empty directory the gateway creates and syncs the store and the token.
        let gateway = Gateway::start(&bench.args.switchboard, &dir).await?;
        first.push(gateway.ready_after.as_secs_f64() * 1e3);
        gateway.stop().await?;
        let gateway = Gateway::start(&bench.args.switchboard, &dir).await?;
        again.push(gateway.ready_after.as_secs_f64() * 1e3);
        if number < 5 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            resident.push(gateway.resident()? as f64 / 1024.0 / 1024.0);
        }
    }
    for (what, values) in [("start to ready, first time", first), ("start to ready, later", again)]
    {
        let ms = median(values);
        report.row(Row::new(what, ms, "ms").at_most(ms, BUDGET_MS, "ms"));
    }
    let mb = median(resident);
    report.row(Row::new("resident memory, idle", mb, "MB").at_most(mb, BUDGET_MB, "MB"));
    Ok(())
}
