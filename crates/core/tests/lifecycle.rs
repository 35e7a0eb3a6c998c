//! Rule: a call has exactly one outcome, is recorded exactly once, is sent to a provider at most
//! once, and leaves no state behind. This holds for every order of events: answers, second answers,
//! answers of another connection, updates, cancellations, deadlines, disconnects, reconnects. If a
//! provider is still working on a call when it ends, this provider and no other receives a
//! cancellation.

mod support;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use sa_core::directory::Registration;
use sa_core::*;
use support::*;
use tokio::task::JoinHandle;

#[derive(Debug, Clone)]
enum Step {
    Start {
        timeout_ms: Option<u64>,
    },
    Reply(usize),
    /// Another connection tries to answer.
    Forge(usize),
    Update(usize),
    Cancel(usize),
    CallerLeaves(usize),
    Advance(u64),
    /// The connection ends. With `late`, the directory detects it only afterwards.
    Close {
        late: bool,
    },
    Forget,
    Attach,
    WireBreaks,
}

fn steps() -> impl Strategy<Value = Vec<(Step, bool)>> {
    let call = 0..6_usize;
    let step = prop_oneof![
        4 => prop::option::of(0..20_000_u64).prop_map(|timeout_ms| Step::Start { timeout_ms }),
        4 => call.clone().prop_map(Step::Reply),
        2 => call.clone().prop_map(Step::Forge),
        3 => call.clone().prop_map(Step::Update),
        2 => call.clone().prop_map(Step::Cancel),
        2 => call.prop_map(Step::CallerLeaves),
        3 => (0..15_000_u64).prop_map(Step::Advance),
        2 => any::<bool>().prop_map(|late| Step::Close { late }),
        1 => Just(Step::Forget),
        3 => Just(Step::Attach),
        1 => Just(Step::WireBreaks),
    ];
    // Whether all tasks run before the next step, or both happen at the same moment.
    prop::collection::vec((step, any::<bool>()), 1..60)
}

struct Started {
    id: CallId,
    task: JoinHandle<(Finished, usize)>,
    updates: Arc<Mutex<usize>>,
    left: bool,
}

struct Counts(Arc<Mutex<usize>>);

impl UpdateSink for Counts {
    fn send(&self, _: Update) -> Result<(), Overrun> {
        *self.0.lock() += 1;
        Ok(())
    }
}

/// The number of calls for the one principal: three quarters of all.
const MAX_SLOTS: usize = 6;

struct World {
    gateway: Gateway,
    connections: Vec<Connection>,
    registration: Option<Registration>,
    calls: Vec<Started>,
    /// The true answer of each call, and the connection that sent it.
    answers: HashMap<CallId, (usize, String)>,
    /// Calls lost with their connection.
    lost: Vec<CallId>,
}

impl World {
    fn new() -> Self {
        let gateway =
            gateway(RouterOptions { max_running: MAX_SLOTS / 3 * 4, ..RouterOptions::default() });
        let mut world = Self {
            gateway,
            connections: Vec::new(),
            registration: None,
            calls: Vec::new(),
            answers: HashMap::new(),
            lost: Vec::new(),
        };
        world.attach();
        world
    }

    fn attach(&mut self) {
        // Two slots, so that calls are queued. An existing connection is replaced and closed, as
        // adapters do.
        let (connection, registration) = self.gateway.connect_with(2);
        if let Some(old) = self.registration.replace(registration) {
            assert!(old.replaced().is_cancelled(), "the replaced connection is told");
            self.close_current();
            drop(old);
        }
        self.connections.push(connection);
    }

    fn close_current(&mut self) {
        let Some(connection) = self.connections.last() else { return };
        let cancelled = cancels(connection);
        for id in requests(connection) {
            let notified = cancelled.iter().any(|(notified, _)| *notified == id);
            if !notified && !self.answers.contains_key(&id) && !self.lost.contains(&id) {
                self.lost.push(id);
            }
        }
        connection.close("the connection ended");
        assert_eq!(connection.running(), 0);
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Start { timeout_ms } => self.start(timeout_ms),
            Step::Reply(n) => self.reply(n),
            Step::Forge(n) => {
                if let Some(id) = self.calls.get(n).map(|call| call.id) {
                    for connection in &self.connections {
                        if !requests(connection).contains(&id) {
                            assert!(!connection.complete(id, ok("\"forged\"")));
                            assert!(!connection.update(id, progress()));
                        }
                    }
                }
            }
            Step::Update(n) => {
                if let Some(call) = self.calls.get(n) {
                    for connection in &self.connections {
                        connection.update(call.id, progress());
                    }
                }
            }
            Step::Cancel(n) => {
                if let Some(call) = self.calls.get(n) {
                    self.gateway.router.cancel(call.id, CancelReason::Requested, |_| true);
                }
            }
            Step::CallerLeaves(n) => {
                if let Some(call) = self.calls.get_mut(n) {
                    call.left = true;
                    call.task.abort();
                }
            }
            Step::Advance(ms) => tokio::time::advance(Duration::from_millis(ms)).await,
            Step::Close { late } => {
                if self.registration.is_some() {
                    if late {
                        self.close_current();
                        tokio::task::yield_now().await;
                        self.registration = None;
                    } else {
                        self.registration = None;
                        self.close_current();
                    }
                }
            }
            Step::Forget => {
                if let Some(registration) = self.registration.take() {
                    registration.withdraw();
                    self.close_current();
                }
            }
            Step::Attach => self.attach(),
            Step::WireBreaks => {
                if let Some(connection) = self.connections.last() {
                    connection.link().broken.store(true, std::sync::atomic::Ordering::Relaxed);
                }
            }
        }
    }

    fn start(&mut self, timeout_ms: Option<u64>) {
        let updates = Arc::new(Mutex::new(0));
        let timeout = timeout_ms.map(Duration::from_millis);
        let request = CallRequest { timeout, ..request("t.x") };
        let running =
            self.gateway.router.start(request, Some(Arc::new(Counts(Arc::clone(&updates)))));
        let id = running.id();
        let seen = Arc::clone(&updates);
        let task = tokio::spawn(async move {
            let finished = running.outcome().await;
            let seen = *seen.lock();
            (finished, seen)
        });
        self.calls.push(Started { id, task, updates, left: false });
    }

    fn reply(&mut self, n: usize) {
        let Some(id) = self.calls.get(n).map(|call| call.id) else { return };
        for (index, connection) in self.connections.iter().enumerate() {
            let text = format!("\"answer {}\"", self.answers.len());
            if connection.complete(id, ok(&text)) {
                let before = self.answers.insert(id, (index, text));
                assert!(before.is_none(), "answered twice");
                assert!(
                    !connection.complete(id, ok("\"again\"")),
                    "a second answer does not count"
                );
            }
        }
    }

    async fn end(mut self) {
        // Longer than the maximum duration of a call.
        settle().await;
        tokio::time::sleep(Duration::from_secs(4_000)).await;
        settle().await;
        for call in std::mem::take(&mut self.calls) {
            self.check(call).await;
        }
        self.gateway.assert_clean();
        for connection in &self.connections {
            assert_eq!(connection.running(), 0);
        }
        // All slots of the budget and of the provider are free again.
        self.attach();
        let last = self.connections.last().unwrap();
        let again: Vec<_> = (0..MAX_SLOTS).map(|_| self.gateway.start(request("t.x"))).collect();
        for _ in 0..MAX_SLOTS {
            settle().await;
            for id in requests(last) {
                last.complete(id, ok("1"));
            }
        }
        for (_, task) in again {
            assert_eq!(task.await.unwrap().outcome, ok("1"));
        }
    }

    async fn check(&self, call: Started) {
        let records = self.gateway.log.records_of(call.id);
        assert_eq!(records.len(), 1, "recorded once");
        let record = &records[0];
        let given: Vec<_> =
            self.connections.iter().filter(|c| requests(c).contains(&call.id)).collect();
        let times: usize = self
            .connections
            .iter()
            .map(|c| requests(c).iter().filter(|id| **id == call.id).count())
            .sum();
        assert!(times <= 1, "dispatched {times} times");
        assert_eq!(
            record.provider.is_some(),
            times == 1,
            "the record says whether a provider was asked"
        );
        let notified: usize = self
            .connections
            .iter()
            .map(|c| cancels(c).iter().filter(|(id, _)| *id == call.id).count())
            .sum();
        let answered = self.answers.get(&call.id);
        let lost = self.lost.contains(&call.id);
        // Each provider of the call has answered it, has disconnected, or has received a
        // cancellation: exactly one of these.
        let ends = usize::from(answered.is_some()) + usize::from(lost) + notified;
        assert_eq!(ends, times, "answered {answered:?}, lost {lost}, told {notified}");
        for connection in given {
            for (_, reason) in cancels(connection).iter().filter(|(id, _)| *id == call.id) {
                check_reason(*reason, &record.outcome);
            }
        }
        match &record.outcome {
            Ok(output) => {
                assert_eq!(Some(output.content.as_str()), answered.map(|(_, text)| text.as_str()));
            }
            Err(error) if error.kind == CallErrorKind::Offline && times == 1 => {
                assert!(lost && !error.retryable && !error.is_undelivered(), "{error:?}");
            }
            Err(_) => {}
        }
        match call.task.await {
            Ok((finished, updates)) => {
                assert_eq!(
                    finished.outcome, record.outcome,
                    "what the caller got is what is recorded"
                );
                assert_eq!(updates, *call.updates.lock(), "no update after the end");
            }
            Err(error) => assert!(error.is_cancelled() && call.left, "{error}"),
        }
    }
}

fn check_reason(reason: CancelReason, outcome: &Outcome) {
    let kind = outcome.as_ref().expect_err("a call that was cancelled has no output").kind;
    let expected = match reason {
        CancelReason::Deadline => CallErrorKind::Timeout,
        _ => CallErrorKind::Cancelled,
    };
    assert_eq!(kind, expected, "{reason:?}");
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn every_call_ends_once_and_leaves_nothing(steps in steps()) {
        simulate(async move {
            let mut world = World::new();
            for (step, then_settle) in steps {
                world.step(step).await;
                if then_settle {
                    settle().await;
                }
            }
            world.end().await;
        });
    }
}
