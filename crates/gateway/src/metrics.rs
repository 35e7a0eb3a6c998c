//! Metrics in the Prometheus text format.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use sa_core::Trimmer;
use sa_limits::budget::SharedBudget;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    surface: &'static str,
    provider: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    at: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeletedLabels {
    kind: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BudgetLabels {
    budget: &'static str,
}

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    duration: Histogram,
    refused: Family<RefusalLabels, Counter>,
    running: Gauge,
    providers: Gauge,
    lost_records: Gauge<i64, std::sync::atomic::AtomicI64>,
    lost_lines: Counter,
    connections: Gauge<u64, AtomicU64>,
    tasks: Gauge,
    schemas: Gauge,
    large_work: Counter,
    deleted: Family<DeletedLabels, Counter>,
    retention_paused: Gauge,
    retention_rounds: Counter,
    budget_total: Family<BudgetLabels, Gauge>,
    budget_used: Family<BudgetLabels, Gauge>,
}

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("switchboard");
        let calls = Family::default();
        registry.register("calls", "Finished calls, by outcome", calls.clone());
        let buckets = [0.000_25, 0.001, 0.004, 0.016, 0.064, 0.25, 1.0, 4.0, 16.0, 64.0, 256.0];
        let duration = Histogram::new(buckets);
        registry.register_with_unit(
            "call_duration",
            "Duration of calls",
            Unit::Seconds,
            duration.clone(),
        );
        let refused = Family::default();
        registry.register(
            "refused",
            "Refused or dropped input, by boundary and reason",
            refused.clone(),
        );
        let running = Gauge::default();
        registry.register("calls_running", "Running calls", running.clone());
        let providers = Gauge::default();
        registry.register("nodes_online", "Connected nodes", providers.clone());
        let lost_records = Gauge::default();
        registry.register(
            "journal_lost",
            "Records that could not be written to disk",
            lost_records.clone(),
        );
        let lost_lines = Counter::default();
        let about = "Log lines that could not be written, or were not read fast enough";
        registry.register("log_lost", about, lost_lines.clone());
        let connections = Gauge::default();
        registry.register("connections", "Open connections of all kinds", connections.clone());
        let tasks = Gauge::default();
        registry.register("tasks", "Tasks of the async runtime", tasks.clone());
        let schemas = Gauge::default();
        let about = "Estimated memory of compiled tool schemas";
        registry.register_with_unit("compiled_schema", about, Unit::Bytes, schemas.clone());
        let large_work = Counter::default();
        let about = "Text of large messages that was processed as offloaded work";
        registry.register_with_unit("large_work", about, Unit::Bytes, large_work.clone());
        let deleted = Family::default();
        registry.register(
            "records_deleted",
            "Deleted old records, by kind and reason",
            deleted.clone(),
        );
        let retention_paused = Gauge::default();
        let about = "1 while deletion by age is paused because the clock is not trusted, else 0";
        registry.register("retention_paused", about, retention_paused.clone());
        let retention_rounds = Counter::default();
        registry.register(
            "retention_rounds",
            "Completed rounds of the search for old records",
            retention_rounds.clone(),
        );
        let (budget_total, budget_used) = (Family::default(), Family::default());
        registry.register(
            "budget_total",
            "Size of each budget, in bytes or as a count",
            budget_total.clone(),
        );
        registry.register("budget_used", "Used part of each budget", budget_used.clone());
        Self {
            registry,
            calls,
            duration,
            refused,
            running,
            providers,
            lost_records,
            lost_lines,
            connections,
            tasks,
            schemas,
            large_work,
            deleted,
            retention_paused,
            retention_rounds,
            budget_total,
            budget_used,
        }
    }

    /// Updates the gauges of the budgets.
    pub fn set_budgets<'a>(&self, budgets: impl IntoIterator<Item = &'a Arc<SharedBudget>>) {
        for budget in budgets {
            let labels = BudgetLabels { budget: budget.limit().name };
            self.budget_total.get_or_create(&labels).set(budget.limit().total as i64);
            self.budget_used.get_or_create(&labels).set(budget.used() as i64);
        }
    }

    pub fn call_ended(
        &self,
        surface: &'static str,
        provider: &'static str,
        outcome: &'static str,
        seconds: f64,
    ) {
        self.calls.get_or_create(&CallLabels { surface, provider, outcome }).inc();
        self.duration.observe(seconds);
    }

    pub fn refused(&self, at: &'static str, reason: &'static str) {
        self.refused.get_or_create(&RefusalLabels { at, reason }).inc();
    }

    pub fn connections(&self) -> &Gauge<u64, AtomicU64> {
        &self.connections
    }

    /// Updates the metrics of deleted records, and whether deletion by age is paused.
    pub fn retention(&self, trimmer: &Trimmer) {
        for ((kind, reason), count) in trimmer.deleted() {
            self.deleted
                .get_or_create(&DeletedLabels { kind, reason })
                .inner()
                .store(count, Ordering::Relaxed);
        }
        self.retention_paused.set(trimmer.clock_problem().is_some().into());
        self.retention_rounds.inner().store(trimmer.rounds(), Ordering::Relaxed);
    }

    /// Renders the metrics after updating those that are counted elsewhere. Must be called within a
    /// runtime, because it counts the runtime's tasks.
    pub fn render(&self, running: usize, nodes: usize, lost_records: u64) -> String {
        self.running.set(running as i64);
        self.providers.set(nodes as i64);
        self.lost_records.set(lost_records as i64);
        self.lost_lines.inner().store(crate::telemetry::lost_lines(), Ordering::Relaxed);
        self.tasks.set(tokio::runtime::Handle::current().metrics().num_alive_tasks() as i64);
        self.schemas.set(sa_schema::compiled_bytes() as i64);
        self.large_work.inner().store(sa_limits::offload::bytes_processed(), Ordering::Relaxed);
        let mut text = String::new();
        // Writing to a `String` cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
