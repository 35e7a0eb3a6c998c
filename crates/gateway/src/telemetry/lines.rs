//! The queue of log lines on their way to stderr.
//!
//! Writing to stderr may block or fail: the disk may be full, the reader may be slow or closed, or
//! a terminal may be stopped with Ctrl-S. Logging therefore puts a line into a queue, and a thread
//! writes it. No call waits for a log line or fails because of one. Lines that exceed the queue or
//! cannot be written are lost. They are counted, and the count is logged once writing works again.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// The maximum number of queued bytes.
const ROOM: usize = 1 << 20;

/// The maximum number of bytes that are held back. If it is exceeded, all lines are released.
const MAX_HELD: usize = 64 * 1024;

/// The retry delay for a non-blocking stream.
const RETRY: Duration = Duration::from_millis(10);

/// Queued lines for a writer thread.
#[derive(Debug)]
pub(super) struct Lines {
    state: Mutex<State>,
    changed: Condvar,
    lost: AtomicU64,
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<Box<[u8]>>,
    bytes: usize,
    held: bool,
    /// Set while the thread writes a line.
    writing: bool,
    /// The numbers of lines that exceeded the queue or could not be written, and that were not
    /// reported yet.
    overrun: u64,
    unwritten: u64,
    why: Option<Error>,
}

impl Lines {
    pub(super) const fn new() -> Self {
        let state = State {
            waiting: VecDeque::new(),
            bytes: 0,
            held: false,
            writing: false,
            overrun: 0,
            unwritten: 0,
            why: None,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), lost: AtomicU64::new(0) }
    }

    /// Queues one or several lines. Never blocks.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        // A line longer than the limit is accepted if the queue is empty.
        if !state.waiting.is_empty() && state.bytes + line.len() > ROOM {
            state.overrun += 1;
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.bytes += line.len();
        state.waiting.push_back(line.into());
        if state.bytes > MAX_HELD {
            state.held = false;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Holds back all lines until [`Self::release`].
    pub(super) fn hold(&self) {
        self.lock().held = true;
    }

    pub(super) fn release(&self) {
        self.lock().held = false;
        self.changed.notify_all();
    }

    /// Returns the number of lost lines since the start.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until all lines are written, with a timeout.
    pub(super) fn settled(&self, timeout: Duration) {
        let busy = |state: &mut State| state.writing || !state.waiting.is_empty();
        self.changed.wait_while_for(&mut self.lock(), busy, timeout);
    }

    /// Writes lines forever. Lost lines are reported in a log line.
    pub(super) fn write(&self, to: impl Write, tell: fn(u64, &str)) -> ! {
        let mut end = End { to, open: false };
        loop {
            self.write_one(&mut end, tell);
        }
    }

    /// Waits for the next line and writes it.
    fn write_one(&self, end: &mut End<impl Write>, mut tell: impl FnMut(u64, &str)) {
        let idle = |state: &mut State| state.held || state.waiting.is_empty();
        let mut state = self.lock();
        self.changed.wait_while(&mut state, idle);
        let Some(line) = state.waiting.pop_front() else { return };
        state.bytes -= line.len();
        state.writing = true;
        drop(state);
        let written = end.write(&line);
        let mut state = self.lock();
        let (mut overrun, mut unwritten) = (0, 0);
        match written {
            Err(why) => {
                state.unwritten += 1;
                state.why = Some(why);
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            // Half of the queue is free, so the report itself is not lost.
            Ok(()) if state.bytes <= ROOM / 2 => {
                overrun = std::mem::take(&mut state.overrun);
                unwritten = std::mem::take(&mut state.unwritten);
            }
            Ok(()) => {}
        }
        let why = if unwritten > 0 { state.why.take() } else { None };
        drop(state);
        if overrun > 0 {
            tell(overrun, "the log was not read fast enough");
        }
        if let Some(why) = why {
            tell(unwritten, &format!("they could not be written ({why})"));
        }
        self.lock().writing = false;
        self.changed.notify_all();
    }

    /// Takes all queued lines, for tests.
    #[cfg(test)]
    pub(super) fn taken(&self) -> String {
        let lines = std::mem::take(&mut self.lock().waiting);
        lines.iter().map(|line| String::from_utf8_lossy(line)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// The output stream.
struct End<W> {
    to: W,
    /// Set if the last line was only partly written. The next line then starts with a line break.
    open: bool,
}

impl<W: Write> End<W> {
    fn write(&mut self, line: &[u8]) -> Result<(), Error> {
        if self.open {
            self.write_all(b"\n")?;
        }
        self.write_all(line)
    }

    fn write_all(&mut self, mut rest: &[u8]) -> Result<(), Error> {
        while !rest.is_empty() {
            match self.to.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.open = rest[count - 1] != b'\n';
                    rest = &rest[count..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Another process that shares the stream has made it non-blocking, such as another
                // job of the shell or the parent process.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::park_timeout(RETRY);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! Rule: every line is written in order, or counted and reported.

    use super::*;

    /// A disk with limited free space.
    struct Disk {
        text: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> Result<usize, Error> {
            let count = bytes.len().min(self.room);
            if count == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room -= count;
            self.text.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> Result<(), Error> {
            Ok(())
        }
    }

    struct Scene {
        lines: Lines,
        end: End<Disk>,
        told: Vec<String>,
    }

    fn scene(room: usize) -> Scene {
        let end = End { to: Disk { text: Vec::new(), room }, open: false };
        Scene { lines: Lines::new(), end, told: Vec::new() }
    }

    impl Scene {
        /// Writes all queued lines and returns the output.
        fn write(&mut self) -> String {
            let (lines, told) = (&self.lines, &mut self.told);
            while !lines.lock().waiting.is_empty() {
                lines.write_one(&mut self.end, |count, why| told.push(format!("{count}: {why}")));
            }
            String::from_utf8(std::mem::take(&mut self.end.to.text)).unwrap()
        }
    }

    #[test]
    fn what_cannot_be_written_is_told_once_it_can_be() {
        let mut scene = scene(8);
        for line in ["one\n", "two and\n", "three\n"] {
            scene.lines.push(line.as_bytes());
        }
        assert_eq!(scene.write(), "one\ntwo ", "as far as there is room");
        assert!(scene.told.is_empty() && scene.lines.lost() == 2);
        scene.end.to.room = 100;
        scene.lines.push(b"four\n");
        assert_eq!(scene.write(), "\nfour\n", "no line goes on in the middle of another");
        assert_eq!(
            scene.told,
            [format!("2: they could not be written ({})", Error::from(ErrorKind::StorageFull))]
        );
        scene.lines.push(b"five\n");
        assert_eq!(
            (scene.write().as_str(), scene.told.len(), scene.lines.lost()),
            ("five\n", 1, 2)
        );
    }

    #[test]
    fn what_finds_no_room_is_told_once_there_is_some() {
        let mut scene = scene(usize::MAX);
        let mut line = vec![b'x'; ROOM / 4];
        line[ROOM / 4 - 1] = b'\n';
        for _ in 0..7 {
            scene.lines.push(&line);
        }
        assert_eq!(scene.lines.lost(), 3);
        assert_eq!(scene.write().len(), ROOM);
        assert_eq!(scene.told, ["3: the log was not read fast enough"]);
        scene.lines.push(&vec![b'x'; ROOM + 1]);
        assert_eq!(
            (scene.write().len(), scene.lines.lost()),
            (ROOM + 1, 3),
            "one that is too long alone"
        );
    }

    #[test]
    fn a_few_lines_are_held_back_and_many_are_not() {
        let lines = Lines::new();
        lines.hold();
        lines.push(b"one\n");
        assert!(lines.lock().held);
        lines.push(&vec![b'x'; MAX_HELD]);
        assert!(!lines.lock().held);
        lines.hold();
        lines.release();
        assert!(!lines.lock().held);
    }
}
