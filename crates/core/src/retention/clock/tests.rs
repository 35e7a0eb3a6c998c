//! Rule: a wall clock that moved is trusted again only when it returns, has been steady for a day,
//! or is confirmed.

use super::*;

const MINUTE_MS: i64 = 60_000;
/// A day in 2026.
const START_MS: i64 = 1_790_000_000_000;

/// A machine: its wall clock can be set, its uptime cannot.
struct Machine {
    now: Reading,
    clock: TrustedClock,
}

impl Machine {
    fn new(memory: Option<ClockMemory>) -> Self {
        Self {
            now: Reading { wall_ms: START_MS, uptime_ms: 5_000 },
            clock: TrustedClock::new(memory),
        }
    }

    fn remembers(trusted_ms: i64) -> Self {
        Self::new(Some(ClockMemory { trusted_ms, untrusted: None }))
    }

    /// Lets time pass, and then sets the clock. Returns whether the clock is trusted.
    fn after(&mut self, passed_ms: i64, set_by_ms: i64) -> bool {
        self.now.wall_ms += passed_ms + set_by_ms;
        self.now.uptime_ms += passed_ms;
        self.clock.observe(self.now).is_none()
    }

    /// Restarts the process, as after a reboot.
    fn restart(&mut self, passed_ms: i64, set_by_ms: i64) -> bool {
        self.clock = TrustedClock::new(self.clock.memory());
        self.now = Reading { wall_ms: self.now.wall_ms + passed_ms + set_by_ms, uptime_ms: 1_000 };
        self.clock.observe(self.now).is_none()
    }
}

#[test]
fn an_ordinary_clock_is_trusted_however_long_nothing_is_written() {
    let mut machine = Machine::new(None);
    assert!(machine.after(0, 0), "an empty store");
    for _ in 0..500 {
        assert!(machine.after(DAY_MS / 2, 5_000), "small corrections");
    }
    assert!(machine.restart(20 * HOUR_MS, 0), "a night off");
}

#[test]
fn a_clock_that_jumps_is_not_trusted_until_it_returns() {
    for jump in [400 * DAY_MS, 61 * MINUTE_MS, -400 * DAY_MS, -61 * MINUTE_MS] {
        let mut machine = Machine::remembers(START_MS - MINUTE_MS);
        assert!(machine.after(MINUTE_MS, 0));
        assert!(!machine.after(MINUTE_MS, jump), "{jump}");
        assert!(!machine.after(MINUTE_MS, 0));
        assert_eq!(
            machine.clock.memory().unwrap().trusted_ms,
            START_MS + MINUTE_MS,
            "the last trusted time stays"
        );
        assert!(machine.after(MINUTE_MS, -jump), "back");
    }
}

#[test]
fn steps_that_add_up_to_a_jump_are_a_jump() {
    let mut machine = Machine::new(None);
    assert!(machine.after(MINUTE_MS, 0));
    assert!(machine.after(MINUTE_MS, 40 * MINUTE_MS));
    assert!(!machine.after(MINUTE_MS, 40 * MINUTE_MS));
}

#[test]
fn a_clock_that_stays_where_it_jumped_to_is_trusted_after_a_day() {
    let mut machine = Machine::new(None);
    assert!(machine.after(0, 0));
    assert!(!machine.after(MINUTE_MS, 400 * DAY_MS));
    let problem = machine.clock.observe(machine.now).unwrap();
    assert_eq!((problem.cause, problem.trusted_in_ms), (Cause::Jumped, STEADY_MS));
    assert!(!machine.after(23 * HOUR_MS, 0));
    assert!(!machine.after(0, 2 * HOUR_MS), "another jump: the day begins again");
    assert!(!machine.after(23 * HOUR_MS, 0));
    assert!(machine.after(HOUR_MS, 0));
    assert!(machine.after(30 * DAY_MS, 0), "and for good");
}

#[test]
fn a_confirmed_clock_is_trusted_until_the_next_jump() {
    let mut machine = Machine::new(None);
    assert!(machine.after(0, 0));
    assert!(!machine.after(MINUTE_MS, 400 * DAY_MS));
    machine.clock.confirm(machine.now);
    assert!(machine.after(MINUTE_MS, 0));
    assert!(!machine.after(MINUTE_MS, -400 * DAY_MS));
}

#[test]
fn a_machine_that_boots_with_a_wrong_clock_is_not_trusted() {
    for gap in [400 * DAY_MS, 25 * HOUR_MS, -2 * HOUR_MS, -400 * DAY_MS] {
        let mut machine = Machine::remembers(START_MS - gap);
        assert!(!machine.after(0, 0), "{gap}");
        assert!(machine.after(75_000, -gap), "corrected by a time server");
    }
}

#[test]
fn a_restart_does_not_make_a_wrong_clock_right() {
    let mut machine = Machine::new(None);
    assert!(machine.after(0, 0));
    assert!(!machine.after(MINUTE_MS, 400 * DAY_MS));
    for _ in 0..3 {
        assert!(!machine.restart(MINUTE_MS, 0), "what was written meanwhile is no reference");
    }
    assert!(machine.restart(MINUTE_MS, -400 * DAY_MS));
}

#[test]
fn short_runs_add_up_to_a_steady_day() {
    let mut machine = Machine::remembers(START_MS - 9 * DAY_MS);
    assert!(!machine.after(0, 0), "after a holiday");
    for _ in 0..2 {
        assert!(!machine.after(8 * HOUR_MS, 0));
        assert!(!machine.restart(16 * HOUR_MS, 0));
    }
    assert!(machine.after(8 * HOUR_MS, 0));
}

#[test]
fn a_clock_problem_names_its_cause() {
    let message = |cause, by_ms| ClockProblem { cause, by_ms, trusted_in_ms: 0 }.to_string();
    assert_eq!(
        message(Cause::Jumped, 400 * DAY_MS),
        "the clock was set forward by 400 days while the gateway ran"
    );
    assert_eq!(
        message(Cause::Jumped, -2 * HOUR_MS),
        "the clock was set back by 2 hours while the gateway ran"
    );
    assert_eq!(
        message(Cause::Gap, 30 * HOUR_MS),
        "the clock is 30 hours ahead of the newest record"
    );
    assert_eq!(
        message(Cause::Gap, i64::MIN),
        "the clock is 106751991167 days behind the newest record"
    );
}

proptest::proptest! {
    #[test]
    fn no_reading_breaks_it(readings: Vec<(i64, i64)>, memory: Option<(i64, Option<(i64, i64)>)>) {
        let memory = memory.map(|(trusted_ms, untrusted)| ClockMemory { trusted_ms, untrusted });
        let mut clock = TrustedClock::new(memory);
        for (wall_ms, uptime_ms) in readings {
            let problem = clock.observe(Reading { wall_ms, uptime_ms });
            proptest::prop_assert!(problem.is_none_or(|problem| problem.trusted_in_ms > 0));
        }
    }
}
