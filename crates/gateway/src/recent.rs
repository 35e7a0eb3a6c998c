//! Call statistics of the last minutes, for the charts of the console.
//!
//! `/metrics` has totals since the start, from which a collector computes charts. The console must
//! show the past minutes without a collector.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use sa_core::CallErrorKind;
use serde::Serialize;

/// The number of seconds that are kept.
pub const SECONDS: i64 = 300;

/// The number of histogram buckets. Each doubling of the duration has four, from a microsecond to
/// over an hour, so the error of a quantile is about 10 %.
const BUCKETS: usize = 4 * 32;

/// The statistics of recent seconds. Seconds without calls use no memory.
#[derive(Debug, Default)]
pub struct Recent {
    seconds: Mutex<VecDeque<Second>>,
}

#[derive(Debug)]
struct Second {
    at_s: i64,
    calls: u32,
    errors: u32,
    durations: [u32; BUCKETS],
}

/// The calls that ended within one step of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Point {
    /// The start of the step, in seconds since 1970.
    pub at_s: i64,
    pub calls: u32,
    /// The number of failed calls. Cancelled calls do not count as failed.
    pub errors: u32,
    /// The median duration.
    pub p50_us: u64,
    /// The 95th percentile of the duration.
    pub p95_us: u64,
}

impl Recent {
    /// Counts a call that has ended now, with an error of this kind if it failed.
    pub fn ended(&self, now_ms: i64, error: Option<CallErrorKind>, duration: Duration) {
        let at_s = now_ms.div_euclid(1_000);
        let mut seconds = self.seconds.lock();
        // If the clock was set back, the call is counted in the latest second.
        if seconds.back().is_none_or(|last| last.at_s < at_s) {
            while seconds.front().is_some_and(|first| first.at_s <= at_s - SECONDS) {
                seconds.pop_front();
            }
            seconds.push_back(Second::at(at_s));
        }
        if let Some(second) = seconds.back_mut() {
            second.calls += 1;
            second.errors += u32::from(error.is_some_and(|kind| kind != CallErrorKind::Cancelled));
            second.durations[bucket(duration)] += 1;
        }
    }

    /// Returns the statistics in steps of `step_s` seconds, oldest first and without empty steps,
    /// and the total.
    pub fn points(&self, now_ms: i64, step_s: i64) -> (Vec<Point>, Point) {
        let oldest = now_ms.div_euclid(1_000) - SECONDS;
        let seconds = self.seconds.lock();
        let mut steps: Vec<Second> = Vec::new();
        let mut all = Second::at(oldest);
        for second in seconds.iter().filter(|second| second.at_s > oldest) {
            let at_s = second.at_s - second.at_s.rem_euclid(step_s);
            if steps.last().is_none_or(|step| step.at_s != at_s) {
                steps.push(Second::at(at_s));
            }
            for sum in [steps.last_mut(), Some(&mut all)].into_iter().flatten() {
                sum.add(second);
            }
        }
        (steps.iter().map(Second::point).collect(), all.point())
    }
}

impl Second {
    fn at(at_s: i64) -> Self {
        Self { at_s, calls: 0, errors: 0, durations: [0; BUCKETS] }
    }

    fn add(&mut self, more: &Self) {
        self.calls += more.calls;
        self.errors += more.errors;
        for (sum, count) in self.durations.iter_mut().zip(more.durations) {
            *sum += count;
        }
    }

    fn point(&self) -> Point {
        Point {
            at_s: self.at_s,
            calls: self.calls,
            errors: self.errors,
            p50_us: self.quantile(50),
            p95_us: self.quantile(95),
        }
    }

    fn quantile(&self, percent: u64) -> u64 {
        let rank = (u64::from(self.calls) * percent).div_ceil(100);
        if rank == 0 {
            return 0;
        }
        let mut passed = 0;
        for (index, count) in self.durations.iter().enumerate() {
            passed += u64::from(*count);
            if passed >= rank {
                return middle(index);
            }
        }
        0
    }
}

/// Returns the histogram bucket: the power of two below the duration, plus the quarter of the way
/// to the next.
fn bucket(duration: Duration) -> usize {
    let us = (duration.as_micros() as u64).max(1);
    let octave = us.ilog2() as usize;
    let quarter = if octave < 2 { 0 } else { (us >> (octave - 2)) as usize & 3 };
    (octave * 4 + quarter).min(BUCKETS - 1)
}

fn middle(index: usize) -> u64 {
    let (octave, quarter) = (index / 4, index as u64 % 4);
    let base = 1_u64 << octave;
    base + base * (2 * quarter + 1) / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_bucket(us: u64) {
        let found = middle(bucket(Duration::from_micros(us)));
        assert!(found.abs_diff(us) <= us / 7 + 1, "{us} µs became {found}");
    }

    #[test]
    fn a_bucket_is_close_to_its_durations() {
        for us in [1, 2, 3, 7, 100, 999, 1_000, 12_345, 1_000_000, 60_000_000, 3_600_000_000] {
            check_bucket(us);
        }
        bucket(Duration::MAX);
    }

    #[test]
    fn seconds_are_counted_apart_and_forgotten() {
        let recent = Recent::default();
        let ms = Duration::from_millis;
        for took in [1, 1, 1, 100] {
            recent.ended(10_500, (took > 1).then_some(CallErrorKind::Timeout), ms(took));
        }
        recent.ended(11_000, None, ms(1));
        // The clock was set back. The call is counted and the order is kept.
        recent.ended(9_000, None, ms(1));
        let (points, _) = recent.points(11_900, 1);
        let counts: Vec<_> =
            points.iter().map(|point| (point.at_s, point.calls, point.errors)).collect();
        assert_eq!(counts, [(10, 4, 1), (11, 2, 0)]);
        assert!(points[0].p50_us.abs_diff(1_000) < 150, "{points:?}");
        assert!(points[0].p95_us.abs_diff(100_000) < 15_000, "{points:?}");
        let (steps, all) = recent.points(11_900, 5);
        assert_eq!((steps.len(), steps[0].at_s, steps[0].calls), (1, 10, 6));
        assert_eq!((all.calls, all.errors, all.p50_us), (6, 1, steps[0].p50_us));
        assert_eq!(recent.points(310_000, 1).0.len(), 1);
        recent.ended(400_000, None, ms(1));
        assert_eq!(recent.points(400_000, 1).0.len(), 1);
    }

    #[track_caller]
    fn check_errors(error: Option<CallErrorKind>, expected: u32) {
        let recent = Recent::default();
        recent.ended(1_000, error, Duration::ZERO);
        let (_, all) = recent.points(1_000, 1);
        assert_eq!((all.calls, all.errors), (1, expected), "{error:?}");
    }

    #[test]
    fn a_cancelled_call_is_no_error() {
        check_errors(None, 0);
        check_errors(Some(CallErrorKind::Failed), 1);
        check_errors(Some(CallErrorKind::Timeout), 1);
        check_errors(Some(CallErrorKind::Cancelled), 0);
    }
}
