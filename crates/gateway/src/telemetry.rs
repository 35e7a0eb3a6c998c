//! Logs for people and machines, and spans for an OpenTelemetry collector.

mod lines;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{IsTerminal as _, Write};
use std::os::fd::AsFd as _;
use std::panic::PanicHookInfo;
use std::time::{Duration, UNIX_EPOCH};

use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor as _,
};
use sa_core::CallRecord;
use sa_text::closest;
use tracing::{Level, enabled, error, warn};
use tracing_subscriber::EnvFilter;

use self::lines::Lines;
use crate::config::settings::{Log, LogFormat, Telemetry};
use crate::terminal::takes_colour;
use sa_text::redact::mask_text;
use sa_text::{affects_display, json_escape, printable};

/// The queue of all lines for stderr. A process has one stderr and one log.
static STDERR: Lines = Lines::new();

/// The timeout for flushing the log, at exit or before other output.
const LAST_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends the log to stderr: human-readable on a terminal, JSON otherwise. Stdout is reserved for
/// command output. Panics are logged, too, because the default panic hook could block on stderr.
pub fn init_logs(log: &Log) -> anyhow::Result<Logs> {
    install(log)?;
    // A separate descriptor avoids the lock of std's stderr, which is held during a write.
    let stderr = std::fs::File::from(std::io::stderr().as_fd().try_clone_to_owned()?);
    std::thread::Builder::new()
        .name("log".into())
        .spawn(move || STDERR.write(stderr, tell_lost))?;
    std::panic::set_hook(Box::new(log_panic));
    Ok(Logs(()))
}

/// Keeps the log active. Dropping it flushes the log.
#[derive(Debug)]
#[must_use]
pub struct Logs(());

impl Logs {
    /// Holds back the log until the result is dropped. Problems during startup would otherwise
    /// appear within the startup message.
    pub fn hold(&self) -> HeldLogs {
        STDERR.hold();
        HeldLogs(())
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        finish_logs();
    }
}

/// Holds back the log until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct HeldLogs(());

impl Drop for HeldLogs {
    fn drop(&mut self) {
        finish_logs();
    }
}

/// Releases and flushes the log, with a timeout.
pub fn finish_logs() {
    STDERR.release();
    STDERR.settled(LAST_TIMEOUT);
}

/// Prints a message to stderr at any log level. It is queued in order with the log, without
/// blocking.
pub fn say(words: &str) {
    STDERR.push(format!("{words}\n").as_bytes());
}

/// Returns the number of lost log lines.
pub(crate) fn lost_lines() -> u64 {
    STDERR.lost()
}

fn tell_lost(lines: u64, why: &str) {
    let lines =
        if lines == 1 { "1 log line was".to_owned() } else { format!("{lines} log lines were") };
    warn!("{lines} lost: {why}");
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let words = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let (words, at) = (words.unwrap_or("no message"), panic.location().map(ToString::to_string));
    let trace = Backtrace::capture();
    let trace = (trace.status() == BacktraceStatus::Captured).then(|| trace.to_string());
    if enabled!(Level::ERROR) {
        return error!(
            at,
            thread = std::thread::current().name(),
            backtrace = trace,
            "panicked: {words}"
        );
    }
    // A panic is never intended, so it is printed at any log level.
    let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
    say(&format!("panicked{at}: {}", printable(words)));
    if let Some(trace) = trace {
        say(&trace);
    }
}

/// Writes one log line at a time.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        STDERR.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn install(log: &Log) -> anyhow::Result<()> {
    let filter = filter(&log.filter).map_err(|error| anyhow::anyhow!("log.filter: {error}"))?;
    let human = match log.format {
        LogFormat::Human => true,
        LogFormat::Json => false,
        LogFormat::Auto => std::io::stderr().is_terminal(),
    };
    // Internal errors would be printed to stderr, and that panics if stderr fails.
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).log_internal_errors(false);
    let installed = if human {
        let subscriber =
            subscriber.with_ansi(takes_colour(&std::io::stderr())).with_target(false).compact();
        subscriber.with_writer(|| OneLine(Stderr, for_people)).try_init()
    } else {
        let subscriber = subscriber.json().flatten_event(true);
        subscriber.with_writer(|| OneLine(Stderr, for_programs)).try_init()
    };
    installed.map_err(|error| anyhow::anyhow!("cannot set up logging: {error}"))
}

/// Escapes control characters in log lines. Untrusted text could otherwise start a new line that
/// looks like a log line. The subscriber writes each line in a single call.
struct OneLine<W>(W, fn(char) -> Option<String>);

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let Self(to, escaped) = self;
        let Some(line) = std::str::from_utf8(bytes)
            .ok()
            .filter(|line| line.trim_end_matches('\n').contains(affects_display))
        else {
            return to.write_all(bytes).map(|()| bytes.len());
        };
        let mut harmless = String::with_capacity(line.len() + 64);
        for c in line.trim_end_matches('\n').chars() {
            match escaped(c) {
                Some(escape) => harmless.push_str(&escape),
                None => harmless.push(c),
            }
        }
        harmless.push('\n');
        to.write_all(harmless.as_bytes()).map(|()| bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// ESC is kept because colours start with it. The subscriber has already escaped it in untrusted
/// text.
fn for_people(c: char) -> Option<String> {
    (affects_display(c) && c != '\u{1b}').then(|| c.escape_unicode().to_string())
}

/// JSON has an escape for each of these characters.
fn for_programs(c: char) -> Option<String> {
    affects_display(c).then(|| json_escape(c))
}

/// Checks a log filter.
pub(crate) fn check_filter(text: &str) -> Result<(), String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    // A word that is no level would be parsed as a module name, so that only this module is logged.
    // A misspelt level would silently disable the log.
    for word in text.split(',').map(str::trim).filter(|word| !word.contains(['=', '['])) {
        let is_level = LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
        let meant =
            if word.eq_ignore_ascii_case("warning") { Some("warn") } else { closest(word, LEVELS) };
        if let Some(level) = meant.filter(|_| !is_level) {
            return Err(format!(
                "\"{}\" is not a log level; did you mean \"{level}\"?",
                printable(word)
            ));
        }
    }
    filter(text).map(drop)
}

fn filter(text: &str) -> Result<EnvFilter, String> {
    // The MCP library logs every message and handshake, and its transport logs every closed
    // connection. The gateway logs these events itself where they matter.
    let quiet = if text.contains("rmcp") { "" } else { ",rmcp=error,rmcp::transport::worker=off" };
    // Its login messages may contain codes and other secrets that an authority sends with a token.
    EnvFilter::try_new(format!("{text}{quiet},rmcp::transport::auth=error"))
        .map_err(|error| format!("{error}; use \"info\" or \"info,sa_nodes=debug\""))
}

/// Creates a span for each finished call.
///
/// A span is built from the call's record and not by instrumenting the code path. Without an
/// exporter, this has no cost. The span has the same ids that were sent to the provider.
#[derive(Debug)]
pub struct Spans {
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
}

impl Spans {
    pub fn new(telemetry: &Telemetry) -> anyhow::Result<Option<Self>> {
        if telemetry.otlp_endpoint.is_empty() {
            return Ok(None);
        }
        let endpoint = format!("{}/v1/traces", telemetry.otlp_endpoint.trim_end_matches('/'));
        let service = telemetry.service_name.clone();
        // The exporter uses a blocking HTTP client, which must not be created on an async thread.
        let build = std::thread::spawn(move || -> anyhow::Result<BatchSpanProcessor> {
            let client = reqwest::blocking::Client::builder()
                .no_proxy()
                .timeout(Duration::from_secs(10))
                .build()?;
            let exporter = opentelemetry_otlp::SpanExporter::builder()
                .with_http()
                .with_http_client(client)
                .with_endpoint(endpoint)
                .build()?;
            let mut processor = BatchSpanProcessor::builder(exporter).build();
            processor.set_resource(&Resource::builder().with_service_name(service).build());
            Ok(processor)
        });
        let processor = build
            .join()
            .map_err(|_| anyhow::anyhow!("cannot set up the OpenTelemetry export"))??;
        let scope =
            InstrumentationScope::builder("switchboard").with_version(crate::VERSION).build();
        Ok(Some(Self { processor, scope }))
    }

    pub(crate) fn call(&self, record: &CallRecord, outcome: &'static str) {
        if !record.trace.sampled {
            return;
        }
        let start = UNIX_EPOCH + Duration::from_millis(record.at_ms.max(0) as u64);
        let context = SpanContext::new(
            TraceId::from_bytes(record.trace.trace_id.to_be_bytes()),
            SpanId::from_bytes(record.trace.span.to_be_bytes()),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        );
        let tool = mask_text(&record.tool);
        let mut attributes = vec![
            KeyValue::new("switchboard.call_id", record.id.to_string()),
            KeyValue::new("gen_ai.tool.name", tool.to_string()),
            KeyValue::new("switchboard.surface", record.surface),
            KeyValue::new("switchboard.outcome", outcome),
        ];
        if let Some(provider) = &record.provider {
            attributes.push(KeyValue::new("switchboard.provider.kind", provider.kind));
            attributes.push(KeyValue::new("switchboard.provider.id", provider.id.to_string()));
        }
        let status = record
            .outcome
            .as_ref()
            .map_or_else(|error| Status::error(error.kind.as_str()), |_| Status::Ok);
        self.processor.on_end(SpanData {
            span_context: context,
            parent_span_id: SpanId::from_bytes(record.trace.parent.to_be_bytes()),
            parent_span_is_remote: record.trace.parent != 0,
            span_kind: SpanKind::Server,
            name: format!("call {tool}").into(),
            start_time: start,
            end_time: start.checked_add(record.duration).unwrap_or(start),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: self.scope.clone(),
        });
    }
}

impl Drop for Spans {
    fn drop(&mut self) {
        // Sends queued spans.
        let _ = self.processor.shutdown();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(filter: &str, wrong: Option<&str>) {
        match (check_filter(filter), wrong) {
            (Ok(()), None) => {}
            (Err(told), Some(word)) => assert!(told.contains(word), "{filter}: {told}"),
            (result, _) => panic!("{filter}: {result:?}"),
        }
    }

    #[track_caller]
    fn check_line(escaped: fn(char) -> Option<String>, line: &str, expected: &str) {
        let mut written = Vec::new();
        assert_eq!(OneLine(&mut written, escaped).write(line.as_bytes()).unwrap(), line.len());
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }

    #[test]
    fn a_line_of_the_log_is_one_line_and_steers_nothing() {
        check_line(
            for_people,
            "\u{1b}[32mINFO\u{1b}[0m plain ü\n",
            "\u{1b}[32mINFO\u{1b}[0m plain ü\n",
        );
        check_line(
            for_people,
            "a\nINFO forged\r\u{202e}b\n",
            "a\\u{a}INFO forged\\u{d}\\u{202e}b\n",
        );
        check_line(for_programs, "{\"a\":\"ü\"}\n", "{\"a\":\"ü\"}\n");
        check_line(for_programs, "{\"a\":\"\u{9b}\u{202e}\"}\n", "{\"a\":\"\\u009b\\u202e\"}\n");
        check_line(for_programs, "{\"a\":\"\u{e0067}\"}\n", "{\"a\":\"\\udb40\\udc67\"}\n");
    }

    #[track_caller]
    fn check_panic(filter: &str, begins: &str) {
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(filter))
            .json()
            .flatten_event(true);
        let subscriber = subscriber.with_writer(|| OneLine(Stderr, for_programs)).finish();
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(log_panic));
        tracing::subscriber::with_default(subscriber, || {
            std::panic::catch_unwind(|| panic!("over the \u{1b}[1mmoon")).unwrap_err();
        });
        std::panic::set_hook(usual);
        let told = STDERR.taken();
        let once = told.matches("over the \\u").count() == 1 && !told.contains('\u{1b}');
        assert!(
            told.starts_with(begins) && once && told.contains("telemetry.rs"),
            "{filter}: {told}"
        );
    }

    #[test]
    fn a_panic_is_told_whatever_is_logged() {
        check_panic("info", "{");
        check_panic("error", "{");
        for filter in ["off", "sa_nodes=debug", "sa_gateway=off"] {
            check_panic(filter, "panicked");
        }
    }

    #[test]
    fn a_level_that_is_misspelt_is_not_taken_for_a_part_of_the_program() {
        for right in
            ["info", "INFO", "off", "", "info,sa_nodes=debug", "sa_nodes", "warn,sa_gateway=trace"]
        {
            check(right, None);
        }
        check("inof", Some("\"info\""));
        check("warning", Some("\"warn\""));
        check("sa_nodes=debug,erorr", Some("\"error\""));
        check("info,=x=", Some("info,sa_nodes=debug"));
        check("sa_nodes=loud", Some("info,sa_nodes=debug"));
    }
}
