//! Logs for people and machines, and spans for an OpenTelemetry collector.

mod lines;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{IsTerminal as _, Write};
use std::os::fd::AsFd as _;
use std::panic::PanicHookInfo;
use std::time::{Duration, UNIX_EPOCH};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor as _};
use sa_core::{CallRecord, nearest};
use tracing::{Level, enabled, error, warn};
use tracing_subscriber::EnvFilter;

use self::lines::Lines;
use crate::config::settings::{Log, LogFormat, Telemetry};
use crate::redact::{json_escape, printable, steers};
use crate::terminal::takes_colour;

/// All that goes to stderr while the logs do. There is one stderr, and one log of a process.
static STDERR: Lines = Lines::new();

/// How long the end of the process, or what a person is to read below the log, waits for lines to be written.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// Sends everything that is logged to stderr: human on a terminal, JSON elsewhere. Stdout is for what was asked for. Panics
/// are logged as well: their usual way to stderr would wait where that is stuck.
pub fn init_logs(log: &Log) -> anyhow::Result<Logs> {
    install(log)?;
    // A lock is held while std's own stderr is written to, for which others would wait.
    let stderr = std::fs::File::from(std::io::stderr().as_fd().try_clone_to_owned()?);
    std::thread::Builder::new().name("log".into()).spawn(move || STDERR.write(stderr, tell_lost))?;
    std::panic::set_hook(Box::new(log_panic));
    Ok(Logs(()))
}

/// Logs are written while this lives, and what is left of them when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Logs(());

impl Logs {
    /// Nothing is seen until the answer is dropped: what goes wrong at the start would otherwise stand in the middle of
    /// what a person is told at the start.
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

/// Logs that nobody sees while this lives.
#[derive(Debug)]
#[must_use]
pub struct HeldLogs(());

impl Drop for HeldLogs {
    fn drop(&mut self) {
        finish_logs();
    }
}

/// Waits a while until all that was logged is written, for a process that is about to end.
pub(crate) fn finish_logs() {
    STDERR.release();
    STDERR.settled(LAST_PATIENCE);
}

/// Says something to whoever sits in front of a gateway, whatever is logged: on stderr, in its turn, and without waiting.
pub(crate) fn say(words: &str) {
    STDERR.push(format!("{words}\n").as_bytes());
}

/// How many lines of the log were lost so far.
pub(crate) fn lost_lines() -> u64 {
    STDERR.lost()
}

fn tell_lost(lines: u64, why: &str) {
    let lines = if lines == 1 { "1 line of the log was".to_owned() } else { format!("{lines} lines of the log were") };
    warn!("{lines} lost: {why}");
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let words =
        payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let (words, at) = (words.unwrap_or("it does not say why"), panic.location().map(ToString::to_string));
    let trace = Backtrace::capture();
    let trace = (trace.status() == BacktraceStatus::Captured).then(|| trace.to_string());
    if enabled!(Level::ERROR) {
        return error!(at, thread = std::thread::current().name(), backtrace = trace, "panicked: {words}");
    }
    // Whatever was not to be logged, nobody meant this.
    let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
    say(&format!("panicked{at}: {}", printable(words)));
    if let Some(trace) = trace {
        say(&trace);
    }
}

/// A line of the log at a time.
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
    // It would tell of its own failures on stderr, and panic where that fails as well.
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).log_internal_errors(false);
    let installed = if human {
        let subscriber = subscriber.with_ansi(takes_colour(&std::io::stderr())).with_target(false).compact();
        subscriber.with_writer(|| OneLine(Stderr, for_people)).try_init()
    } else {
        let subscriber = subscriber.json().flatten_event(true);
        subscriber.with_writer(|| OneLine(Stderr, for_programs)).try_init()
    };
    installed.map_err(|error| anyhow::anyhow!("cannot set up logging: {error}"))
}

/// A line of the log in which nothing steers a terminal: text from outside could otherwise begin a line of its own, which
/// looks like one of ours. The subscriber writes each line at once.
struct OneLine<W>(W, fn(char) -> Option<String>);

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let Self(to, escaped) = self;
        let Some(line) = std::str::from_utf8(bytes).ok().filter(|line| line.trim_end_matches('\n').contains(steers))
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

/// Colours begin with an escape, which are ours: the subscriber has written those of others out already.
fn for_people(c: char) -> Option<String> {
    (steers(c) && c != '\u{1b}').then(|| c.escape_unicode().to_string())
}

/// JSON has an escape for each of them.
fn for_programs(c: char) -> Option<String> {
    steers(c).then(|| json_escape(c))
}

/// Whether this says what is to be logged.
pub(crate) fn check_filter(text: &str) -> Result<(), String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    // A word that is no level is a part of the program, of which everything is logged, and nothing of any other: with a
    // level that is misspelt there would be no logs.
    for word in text.split(',').map(str::trim).filter(|word| !word.contains(['=', '['])) {
        let is_level = LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
        let meant = if word.eq_ignore_ascii_case("warning") { Some("warn") } else { nearest(word, LEVELS) };
        if let Some(level) = meant.filter(|_| !is_level) {
            return Err(format!("\"{}\" is no level; did you mean \"{level}\"?", printable(word)));
        }
    }
    filter(text).map(drop)
}

fn filter(text: &str) -> Result<EnvFilter, String> {
    // The MCP library tells of every message and handshake, which is ours to tell where it matters.
    // So is that a connection has ended, of which its transport tells in the words of its own types.
    let quiet = if text.contains("rmcp") { "" } else { ",rmcp=error,rmcp::transport::worker=off" };
    // Of what it says about logins, some is for nobody's eyes: codes, and whatever an authority sends beside a token.
    EnvFilter::try_new(format!("{text}{quiet},rmcp::transport::auth=error"))
        .map_err(|error| format!("{error}; try \"info\" or \"info,sa_nodes=debug\""))
}

/// Makes a span of every ended call.
///
/// Spans are made from the call's record, when it is written, and not by instrumenting the code on its way: a gateway
/// that exports nothing then pays nothing, and the ids in the span are those that the provider was told.
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
        // The exporter brings a blocking HTTP client, which must not be made on a thread that runs async code.
        let build = std::thread::spawn(move || -> anyhow::Result<BatchSpanProcessor> {
            let client = reqwest::blocking::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build()?;
            let exporter = opentelemetry_otlp::SpanExporter::builder()
                .with_http()
                .with_http_client(client)
                .with_endpoint(endpoint)
                .build()?;
            let mut processor = BatchSpanProcessor::builder(exporter).build();
            processor.set_resource(&Resource::builder().with_service_name(service).build());
            Ok(processor)
        });
        let processor = build.join().map_err(|_| anyhow::anyhow!("cannot set up the OpenTelemetry export"))??;
        let scope = InstrumentationScope::builder("switchboard").with_version(crate::VERSION).build();
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
        let mut attributes = vec![
            KeyValue::new("switchboard.call_id", record.id.to_string()),
            KeyValue::new("gen_ai.tool.name", record.tool.to_string()),
            KeyValue::new("switchboard.surface", record.surface),
            KeyValue::new("switchboard.outcome", outcome),
        ];
        if let Some(provider) = &record.provider {
            attributes.push(KeyValue::new("switchboard.provider.kind", provider.kind));
            attributes.push(KeyValue::new("switchboard.provider.id", provider.id.to_string()));
        }
        let status = record.outcome.as_ref().map_or_else(|error| Status::error(error.kind.as_str()), |_| Status::Ok);
        self.processor.on_end(SpanData {
            span_context: context,
            parent_span_id: SpanId::from_bytes(record.trace.parent.to_be_bytes()),
            parent_span_is_remote: record.trace.parent != 0,
            span_kind: SpanKind::Server,
            name: format!("call {}", record.tool).into(),
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
        // Sends what is still queued.
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
        check_line(for_people, "\u{1b}[32mINFO\u{1b}[0m plain ü\n", "\u{1b}[32mINFO\u{1b}[0m plain ü\n");
        check_line(for_people, "a\nINFO forged\r\u{202e}b\n", "a\\u{a}INFO forged\\u{d}\\u{202e}b\n");
        check_line(for_programs, "{\"a\":\"ü\"}\n", "{\"a\":\"ü\"}\n");
        check_line(for_programs, "{\"a\":\"\u{9b}\u{202e}\"}\n", "{\"a\":\"\\u009b\\u202e\"}\n");
        check_line(for_programs, "{\"a\":\"\u{e0067}\"}\n", "{\"a\":\"\\udb40\\udc67\"}\n");
    }

    #[track_caller]
    fn check_panic(filter: &str, begins: &str) {
        let subscriber = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(filter)).json().flatten_event(true);
        let subscriber = subscriber.with_writer(|| OneLine(Stderr, for_programs)).finish();
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(log_panic));
        tracing::subscriber::with_default(subscriber, || {
            std::panic::catch_unwind(|| panic!("over the \u{1b}[1mmoon")).unwrap_err();
        });
        std::panic::set_hook(usual);
        let told = STDERR.taken();
        let once = told.matches("over the \\u").count() == 1 && !told.contains('\u{1b}');
        assert!(told.starts_with(begins) && once && told.contains("telemetry.rs"), "{filter}: {told}");
    }

    #[test]
    fn a_panic_is_told_whatever_is_logged() {
        check_panic("info", "{");
        check_panic("error", "{");
        for filter in ["off", "sa_nodes=debug", "switchboard=off"] {
            check_panic(filter, "panicked");
        }
    }

    #[test]
    fn a_level_that_is_misspelt_is_not_taken_for_a_part_of_the_program() {
        for right in ["info", "INFO", "off", "", "info,sa_nodes=debug", "sa_nodes", "warn,switchboard=trace"] {
            check(right, None);
        }
        check("inof", Some("\"info\""));
        check("warning", Some("\"warn\""));
        check("sa_nodes=debug,erorr", Some("\"error\""));
        check("info,=x=", Some("info,sa_nodes=debug"));
        check("sa_nodes=loud", Some("info,sa_nodes=debug"));
    }
}
