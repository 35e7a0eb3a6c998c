//! One command, from its start until it is forgotten.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sa_limits::budget::Permit;
use sa_process::Order;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::input::Stdin;
use super::live::Live;
use super::now_ms;
use super::output::Capture;

/// The length of a truncated command in lists.
const SHORT: usize = 200;

/// A generous estimate of a session's memory apart from its texts.
const OVERHEAD: usize = 4096;

/// A command that is running or has ended.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    /// The id of the principal that started it, if the gateway sent one.
    pub(super) owner: Option<String>,
    command: String,
    /// The path for people and models; the path itself may not be valid text.
    workdir: String,
    pid: i32,
    pub(super) started_ms: i64,
    started: Instant,
    state: Mutex<State>,
    /// Fires when the command and all its descendants have ended, and all output has been read.
    pub(super) ended: CancellationToken,
    pub(super) orders: mpsc::UnboundedSender<Order>,
    pub(super) stdin: Stdin,
    pub(super) live: Live,
}

#[derive(Debug, Default)]
struct State {
    capture: Capture,
    background: bool,
    end: Option<End>,
    /// The slot of a session that may run in the background.
    slot: Option<Permit>,
}

/// The way in which a command has ended.
#[derive(Debug, Clone)]
pub(super) struct End {
    pub(super) code: Option<i32>,
    pub(super) signal: Option<String>,
    pub(super) timed_out: bool,
    pub(super) after: Duration,
}

impl End {
    pub(super) fn status(&self) -> &'static str {
        if self.code == Some(0) && !self.timed_out { "completed" } else { "failed" }
    }

    fn event(&self) -> &'static str {
        match (self.timed_out, self.status()) {
            (true, _) => "process.timed_out",
            (false, "completed") => "process.finished",
            _ => "process.failed",
        }
    }
}

/// The identity of a session, before it has a state.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) id: String,
    pub(super) owner: Option<String>,
    pub(super) command: String,
    pub(super) workdir: PathBuf,
    pub(super) pid: i32,
    pub(super) slot: Option<Permit>,
}

impl Session {
    pub(super) fn new(who: Identity, stdin: Stdin) -> (Arc<Self>, mpsc::UnboundedReceiver<Order>) {
        let (orders, receiver) = mpsc::unbounded_channel();
        let session = Self {
            id: who.id,
            owner: who.owner,
            command: who.command,
            workdir: who.workdir.to_string_lossy().into_owned(),
            pid: who.pid,
            started_ms: now_ms(),
            started: Instant::now(),
            state: Mutex::new(State { slot: who.slot, ..State::default() }),
            ended: CancellationToken::new(),
            orders,
            stdin,
            live: Live::default(),
        };
        (Arc::new(session), receiver)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the approximate size in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        OVERHEAD + self.command.len() + self.workdir.len() + self.state().capture.weight()
    }

    /// Sends an order. A command that has ended ignores it.
    pub(super) fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }

    pub(super) fn write(&self, text: &str) {
        self.live.push(text);
        self.state().capture.push(text);
    }

    /// Returns the time of the end, in milliseconds since 1970. It is the start plus the duration,
    /// which is not affected by changes of the clock.
    pub(super) fn ended_ms(&self, end: &End) -> i64 {
        self.started_ms.saturating_add(i64::try_from(end.after.as_millis()).unwrap_or(i64::MAX))
    }

    pub(super) fn end(&self) -> Option<End> {
        self.state().end.clone()
    }

    /// Moves the session to the background, unless it has ended already. `announce` is called
    /// before any report of its end.
    pub(super) fn to_background(&self, announce: impl FnOnce(&str, Value)) -> bool {
        let mut state = self.state();
        if state.end.is_some() {
            return false;
        }
        state.background = true;
        announce("process.started", self.event_data(None));
        true
    }

    /// Records the end, and announces it if the session is in the background.
    pub(super) fn finish(&self, end: End, announce: impl FnOnce(&str, Value)) -> bool {
        let mut state = self.state();
        state.capture.seal();
        state.end = Some(end.clone());
        state.slot = None;
        if state.background {
            announce(end.event(), self.event_data(Some(&end)));
        }
        let background = state.background;
        drop(state);
        self.ended.cancel();
        background
    }

    /// Returns the result of `Bash` for a command that has ended.
    pub(super) fn completed(&self, end: &End) -> Value {
        let mut state = self.state();
        let (tail, truncated) = (state.capture.tail().to_owned(), state.capture.truncated());
        json!({
            "status": end.status(),
            "sessionId": self.id,
            "exitCode": end.code,
            "signal": end.signal,
            "timedOut": end.timed_out,
            "startedAt": self.started_ms,
            "endedAt": self.ended_ms(end),
            "durationMs": millis(end.after),
            "output": state.capture.text(),
            "tail": tail,
            "truncated": truncated,
            "workdir": self.workdir,
        })
    }

    /// Returns the result of `Bash` for a command that continues in the background.
    pub(super) fn running(&self) -> Value {
        json!({
            "status": "running",
            "sessionId": self.id,
            "pid": self.pid,
            "startedAt": self.started_ms,
            "tail": self.state().capture.tail(),
            "workdir": self.workdir,
        })
    }

    /// Returns the result of `Process` for `poll`.
    pub(super) fn polled(&self) -> Value {
        let state = self.state();
        let end = state.end.as_ref();
        json!({
            "status": end.map_or("running", End::status),
            "sessionId": self.id,
            "pid": self.pid,
            "running": end.is_none(),
            "exitCode": end.and_then(|end| end.code),
            "signal": end.and_then(|end| end.signal.clone()),
            "timedOut": end.is_some_and(|end| end.timed_out),
            "startedAt": self.started_ms,
            "endedAt": end.map(|end| self.ended_ms(end)),
            "durationMs": millis(end.map_or_else(|| self.elapsed(), |end| end.after)),
            "tail": state.capture.tail(),
            "truncated": state.capture.truncated(),
            "workdir": self.workdir,
        })
    }

    /// Returns one entry of the result of `Process` for `list`.
    pub(super) fn listed(&self) -> Value {
        let mut listed = self.polled();
        listed["command"] = self.short_command().into();
        listed
    }

    /// Returns the result of `Process` for `log`.
    pub(super) fn logged(&self, offset: usize, limit: usize) -> Value {
        let mut state = self.state();
        let (chars, truncated) = (state.capture.chars(), state.capture.truncated());
        let end = state.end.clone();
        state.capture.text();
        let dropped = state.capture.dropped_lines();
        let lines: Vec<&str> = state.capture.text().lines().collect();
        let from = offset.min(lines.len());
        let page = &lines[from..from.saturating_add(limit).min(lines.len())];
        json!({
            "status": end.as_ref().map_or("running", End::status),
            "sessionId": self.id,
            "running": end.is_none(),
            "exitCode": end.as_ref().and_then(|end| end.code),
            "signal": end.as_ref().and_then(|end| end.signal.clone()),
            "log": page.join("\n"),
            "offset": from,
            "lines": page.len(),
            "totalLines": lines.len(),
            "droppedLines": dropped,
            "totalChars": chars,
            "truncated": truncated,
        })
    }

    fn short_command(&self) -> String {
        self.command.chars().take(SHORT).collect()
    }

    fn event_data(&self, end: Option<&End>) -> Value {
        let mut data = json!({
            "sessionId": self.id,
            "pid": self.pid,
            "command": self.short_command(),
            "workdir": self.workdir,
            "startedAt": self.started_ms,
        });
        if let Some(end) = end {
            data["exitCode"] = end.code.into();
            data["signal"] = end.signal.clone().into();
            data["timedOut"] = end.timed_out.into();
            data["endedAt"] = self.ended_ms(end).into();
            data["durationMs"] = millis(end.after).into();
        }
        data
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Arc<Session> {
        let who = Identity {
            id: "s".into(),
            owner: None,
            command: "é".repeat(300),
            workdir: "/w".into(),
            pid: 7,
            slot: None,
        };
        Session::new(who, Stdin::new(None, false)).0
    }

    fn end(code: Option<i32>, timed_out: bool) -> End {
        let signal = code.is_none().then(|| "SIGKILL".to_owned());
        End { code, signal, timed_out, after: Duration::from_millis(3) }
    }

    #[track_caller]
    fn check_news(end: End, expected: &str) {
        let session = session();
        let mut news = Vec::new();
        assert!(session.to_background(|name, data| news.push((name.to_owned(), data))));
        assert!(session.finish(end.clone(), |name, data| news.push((name.to_owned(), data))));
        let [(started, first), (ended, last)] = news.try_into().unwrap();
        assert_eq!((started.as_str(), ended.as_str()), ("process.started", expected));
        assert_eq!(
            (&first["sessionId"], &first["pid"], &first["workdir"]),
            (&json!("s"), &json!(7), &json!("/w"))
        );
        assert_eq!(first["command"], "é".repeat(200));
        assert_eq!(first.get("exitCode"), None);
        assert_eq!((&last["exitCode"], &last["signal"]), (&json!(end.code), &json!(end.signal)));
        assert_eq!(
            (&last["timedOut"], &last["startedAt"]),
            (&json!(end.timed_out), &first["startedAt"])
        );
        assert_eq!(last["durationMs"], 3);
        assert_eq!(last["endedAt"].as_i64().unwrap() - last["startedAt"].as_i64().unwrap(), 3);
    }

    #[tokio::test]
    async fn a_session_in_the_background_is_news() {
        check_news(end(Some(0), false), "process.finished");
        check_news(end(Some(1), false), "process.failed");
        check_news(end(None, false), "process.failed");
        check_news(end(None, true), "process.timed_out");
        check_news(end(Some(0), true), "process.timed_out");
    }

    /// Returns the values of `startedAt`, `endedAt` and `durationMs`.
    fn times(result: &Value) -> [i64; 3] {
        ["startedAt", "endedAt", "durationMs"].map(|name| result[name].as_i64().unwrap())
    }

    #[tokio::test]
    async fn the_times_of_a_session_agree_when_the_clock_was_changed() {
        const HOUR: i64 = 3_600_000;
        // The clock was set back after the start, set forward, or not changed.
        for started_ms in [now_ms() + HOUR, now_ms() - HOUR, now_ms()] {
            let mut session = session();
            Arc::get_mut(&mut session).unwrap().started_ms = started_ms;
            assert!(session.to_background(|_, _| {}));
            let end = End { after: Duration::from_micros(1_234_567), ..end(Some(0), false) };
            let mut event = Value::Null;
            session.finish(end.clone(), |_, data| event = data);
            for result in [session.completed(&end), session.polled(), session.listed(), event] {
                assert_eq!(times(&result), [started_ms, started_ms + 1_234, 1_234], "{result}");
            }
        }
    }

    #[tokio::test]
    async fn one_that_was_waited_for_is_none() {
        let session = session();
        assert!(!session.finish(end(Some(0), false), |name, _| panic!("{name}")));
        assert!(!session.to_background(|name, _| panic!("{name}")), "it has ended");
    }
}
