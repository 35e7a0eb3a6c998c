//! The lines of the log, on their way to stderr.
//!
//! Nobody knows what is behind stderr: a disk that is full, a program that has left or does not read, a terminal that
//! somebody has stopped with Ctrl-S. So whoever logs leaves a line in a queue, and a thread writes them: no call
//! waits for its lines, and none fails with them. What finds no room or cannot be written is lost; it is counted, and told once
//! the log takes lines again.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many bytes wait to be written, at most.
const ROOM: usize = 1 << 20;

/// How much waits to be seen while lines are held back. With more of them all are shown.
const MAX_HELD: usize = 64 * 1024;

/// How long until a stream is tried again that somebody has set not to wait.
const RETRY: Duration = Duration::from_millis(10);

/// Lines that wait for a thread that writes them.
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
    /// The thread has taken a line and is not done with it.
    writing: bool,
    /// Lines that found no room, and that could not be written with the reason, of which nobody has been told.
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

    /// Leaves a line, or several that belong together, to be written. Waits for nothing.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        // One that is longer than the room is written all the same, if nothing else is.
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

    /// From now on lines wait until they are released.
    pub(super) fn hold(&self) {
        self.lock().held = true;
    }

    pub(super) fn release(&self) {
        self.lock().held = false;
        self.changed.notify_all();
    }

    /// How many lines were lost since the start.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until nothing is left to be written, but no longer than this.
    pub(super) fn settled(&self, patience: Duration) {
        let busy = |state: &mut State| state.writing || !state.waiting.is_empty();
        drop(self.changed.wait_timeout_while(self.lock(), patience, busy));
    }

    /// Writes lines for as long as the process runs. What was lost is told in a sentence, which is a line of the log as well.
    pub(super) fn write(&self, to: impl Write, tell: fn(u64, &str)) -> ! {
        let mut end = End { to, open: false };
        loop {
            self.write_one(&mut end, tell);
        }
    }

    /// Writes the next line as soon as there is one.
    fn write_one(&self, end: &mut End<impl Write>, mut tell: impl FnMut(u64, &str)) {
        let idle = |state: &mut State| state.held || state.waiting.is_empty();
        let mut state = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
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
            // With so much room the sentence itself is not lost.
            Ok(()) if state.bytes <= ROOM / 2 => {
                overrun = std::mem::take(&mut state.overrun);
                unwritten = std::mem::take(&mut state.unwritten);
            }
            Ok(()) => {}
        }
        let why = if unwritten > 0 { state.why.take() } else { None };
        drop(state);
        if overrun > 0 {
            tell(overrun, "it was not read fast enough");
        }
        if let Some(why) = why {
            tell(unwritten, &format!("they could not be written ({why})"));
        }
        self.lock().writing = false;
        self.changed.notify_all();
    }

    /// All that waits, for tests of what others leave here.
    #[cfg(test)]
    pub(super) fn taken(&self) -> String {
        let lines = std::mem::take(&mut self.lock().waiting);
        lines.iter().map(|line| String::from_utf8_lossy(line)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where lines are written to.
struct End<W> {
    to: W,
    /// The last line is there in part, so that the next one needs a beginning of its own.
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
                // Whoever shares the stream has set it so: a shell's other jobs, or the program that started us.
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::park_timeout(RETRY),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! Rule: every line is written, in its order, or counted and told.

    use super::*;

    /// A disk with room for so many bytes.
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
        /// Writes all that waits.
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
        assert_eq!(scene.told, [format!("2: they could not be written ({})", Error::from(ErrorKind::StorageFull))]);
        scene.lines.push(b"five\n");
        assert_eq!((scene.write().as_str(), scene.told.len(), scene.lines.lost()), ("five\n", 1, 2));
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
        assert_eq!(scene.told, ["3: it was not read fast enough"]);
        scene.lines.push(&vec![b'x'; ROOM + 1]);
        assert_eq!((scene.write().len(), scene.lines.lost()), (ROOM + 1, 3), "one that is too long alone");
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
