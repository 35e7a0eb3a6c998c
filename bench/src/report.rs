//! The report, as a table or as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use crate::load::Latencies;

#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
    notes: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Row {
    what: String,
    value: f64,
    unit: &'static str,
    latencies: Option<(Duration, Duration)>,
    cpu_us: Option<f64>,
    /// The names of the references, with the ratios to them.
    beside: Vec<(String, f64)>,
    note: Option<String>,
    budget: Option<(String, bool)>,
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            what: what.into(),
            value,
            unit,
            latencies: None,
            cpu_us: None,
            beside: Vec::new(),
            note: None,
            budget: None,
        }
    }

    pub(crate) fn latencies(self, latencies: &Latencies) -> Self {
        Self { latencies: Some((latencies.at(0.5), latencies.at(0.99))), ..self }
    }

    pub(crate) fn cpu_us(self, us: f64) -> Self {
        Self { cpu_us: Some(us), ..self }
    }

    pub(crate) fn beside(mut self, what: &str, ratio: f64) -> Self {
        self.beside.push((what.to_owned(), ratio));
        self
    }

    pub(crate) fn note(self, note: String) -> Self {
        Self { note: Some(note), ..self }
    }

    pub(crate) fn at_least(self, value: f64, limit: f64, of: &str) -> Self {
        Self { budget: Some((format!("≥ {limit} {of}"), value >= limit)), ..self }
    }

    pub(crate) fn at_most(self, value: f64, limit: f64, of: &str) -> Self {
        Self { budget: Some((format!("≤ {limit} {of}"), value <= limit)), ..self }
    }

    fn cells(&self) -> [String; 7] {
        let time = |time: Option<Duration>| time.map(short).unwrap_or_default();
        let mut beside: Vec<String> =
            self.beside.iter().map(|(what, ratio)| format!("{ratio:.2} × {what}")).collect();
        beside.extend(self.note.clone());
        let budget = self.budget.as_ref().map(|(text, holds)| {
            let verdict = if *holds { "holds" } else { "MISSED" };
            format!("{text}: {verdict}")
        });
        [
            self.what.clone(),
            format!(
                "{}{}{}",
                number(self.value),
                if self.unit == "/s" { "" } else { " " },
                self.unit
            ),
            time(self.latencies.map(|(p50, _)| p50)),
            time(self.latencies.map(|(_, p99)| p99)),
            self.cpu_us.map(|us| format!("{us:.1} µs")).unwrap_or_default(),
            beside.join(", "),
            budget.unwrap_or_default(),
        ]
    }

    fn json(&self) -> Value {
        let beside: Vec<Value> =
            self.beside.iter().map(|(what, ratio)| json!({"what": what, "ratio": ratio})).collect();
        json!({
            "what": self.what,
            "value": self.value,
            "unit": self.unit,
            "p50_us": self.latencies.map(|(p50, _)| p50.as_secs_f64() * 1e6),
            "p99_us": self.latencies.map(|(_, p99)| p99.as_secs_f64() * 1e6),
            "gateway_cpu_us": self.cpu_us,
            "beside": beside,
            "note": self.note,
            "budget": self.budget.as_ref().map(|(text, holds)| json!({"text": text, "holds": holds})),
        })
    }
}

impl Report {
    pub(crate) fn row(&mut self, row: Row) {
        // A run takes minutes, so each row is printed as progress.
        eprintln!(
            "{}",
            row.cells()
                .iter()
                .filter(|cell| !cell.is_empty())
                .cloned()
                .collect::<Vec<_>>()
                .join("  ")
        );
        self.rows.push(row);
    }

    pub(crate) fn note(&mut self, note: String) {
        eprintln!("note: {note}");
        self.notes.push(note);
    }

    pub(crate) fn table(&self) -> String {
        let head =
            ["what", "measured", "p50", "p99", "gateway CPU", "ratio", "budget"].map(str::to_owned);
        let rows: Vec<_> = self.rows.iter().map(Row::cells).collect();
        let width = |column: usize| {
            let cells = rows.iter().chain([&head]);
            cells.map(|cells| cells[column].chars().count()).max().unwrap_or_default()
        };
        let line = |cells: &[String; 7]| {
            let padded = cells.iter().enumerate().map(|(column, cell)| match column {
                1..=4 => format!(" {cell:>0$} |", width(column)),
                _ => format!(" {cell:<0$} |", width(column)),
            });
            format!("|{}\n", padded.collect::<String>())
        };
        let rule = (0..7).map(|column| match column {
            1..=4 => format!("-{}:|", "-".repeat(width(column))),
            _ => format!("-{}-|", "-".repeat(width(column))),
        });
        let mut text = line(&head) + "|" + &rule.collect::<String>() + "\n";
        text.extend(rows.iter().map(line));
        text.extend(self.notes.iter().map(|note| format!("\nNote: {note}\n")));
        text
    }

    pub(crate) fn json(&self) -> String {
        let rows: Vec<Value> = self.rows.iter().map(Row::json).collect();
        format!("{:#}\n", json!({"rows": rows, "notes": self.notes}))
    }
}

fn short(time: Duration) -> String {
    match time.as_secs_f64() * 1e6 {
        us if us < 1e3 => format!("{us:.0} µs"),
        us => format!("{:.1} ms", us / 1e3),
    }
}

/// Formats a number with three significant digits and separated thousands.
fn number(value: f64) -> String {
    match value {
        value if value < 100.0 => format!("{value:.1}"),
        value if value < 1_000.0 => format!("{value:.0}"),
        value => {
            let digits = format!("{value:.0}");
            let groups: Vec<&str> = digits
                .as_bytes()
                .rchunks(3)
                .rev()
                .filter_map(|group| std::str::from_utf8(group).ok())
                .collect();
            groups.join(",")
        }
    }
}
