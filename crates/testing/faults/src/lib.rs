//! Test support: a disk below SQLite that loses unsynced data and fails on demand.
//!
//! [`Disk::mount`] watches a directory. Every file that SQLite opens in it through the file layer
//! [`VFS`] is a real file. In addition, the disk keeps the image that a power loss would leave. It
//! contains all synced data, and a random part of the unsynced data. [`Disk::after_power_loss`]
//! writes such an image to another directory.

mod memory;
mod vfs;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};

pub use self::memory::sqlite_bytes;

/// The name of the file layer, for `OpenOptions::vfs`.
pub const VFS: &str = "forgetful";

/// A watched directory.
#[derive(Debug)]
pub struct Disk {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    files: HashMap<String, Image>,
    dice: Dice,
    /// The operation at which the power fails.
    dies_at: Option<u64>,
    operations: u64,
    dead: bool,
    /// One operation in this number fails; 0 for none.
    failing: u64,
    failed: u64,
    /// Every write and sync fails with an I/O error.
    broken: bool,
}

/// The durable content of a file, and its unsynced changes.
#[derive(Debug, Default)]
struct Image {
    durable: Vec<u8>,
    unsynced: Vec<Change>,
    /// The file was deleted, and the directory was not synced since. The file may come back.
    deleted: bool,
}

#[derive(Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

/// The outcome of one SQLite operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Proceed,
    NoRoom,
    Broken,
}

impl Disk {
    /// Watches a directory. The seed decides all random choices.
    pub fn mount(directory: &Path, seed: u64) -> Arc<Self> {
        vfs::register();
        let state = State {
            files: HashMap::new(),
            dice: Dice(seed),
            dies_at: None,
            operations: 0,
            dead: false,
            failing: 0,
            failed: 0,
            broken: false,
        };
        let disk = Arc::new(Self { state: Mutex::new(state) });
        disks().insert(directory.to_owned(), disk.clone());
        disk
    }

    /// Cuts the power after this number of further writes and syncs. Every operation fails from
    /// then on.
    pub fn die_after(&self, operations: u64) {
        let mut state = self.lock();
        state.dies_at = Some(state.operations + operations);
    }

    /// Cuts the power now.
    pub fn die(&self) {
        self.lock().dead = true;
    }

    /// Makes one write or sync in this number fail, with a full disk or another error; 0 for none.
    pub fn fail_one_in(&self, operations: u64) {
        self.lock().failing = operations;
    }

    /// Makes every write and sync fail with an I/O error, until it is repaired.
    pub fn set_broken(&self, broken: bool) {
        self.lock().broken = broken;
    }

    /// Returns how many writes and syncs there were, and how many of them failed on purpose.
    pub fn operations(&self) -> (u64, u64) {
        let state = self.lock();
        (state.operations, state.failed)
    }

    /// Writes the image after a power loss to another directory. Every unsynced write is there
    /// completely, in part, or not at all.
    pub fn after_power_loss(&self, directory: &Path) {
        let mut state = self.lock();
        let State { files, dice, .. } = &mut *state;
        for (name, image) in files {
            if image.deleted && dice.roll(2) == 0 {
                continue;
            }
            let mut bytes = image.durable.clone();
            for change in &image.unsynced {
                match (dice.roll(3), change) {
                    (0, _) => {}
                    (1, Change::Write(at, data)) => {
                        // The write is torn at a sector.
                        let sectors = data.len() / 512;
                        let kept = dice.roll(sectors as u64 + 1) as usize * 512;
                        apply(&mut bytes, &Change::Write(*at, data[..kept].to_vec()));
                    }
                    (_, change) => apply(&mut bytes, change),
                }
            }
            std::fs::write(directory.join(name), bytes).expect("the image is written");
        }
    }

    /// Decides the outcome of one write, truncation or sync.
    fn judge(&self) -> Verdict {
        let mut state = self.lock();
        state.operations += 1;
        if state.dies_at.is_some_and(|at| state.operations >= at) {
            state.dead = true;
        }
        if state.dead || state.broken {
            return Verdict::Broken;
        }
        let failing = state.failing;
        if failing > 0 && state.dice.roll(failing) == 0 {
            state.failed += 1;
            return if state.dice.roll(2) == 0 { Verdict::NoRoom } else { Verdict::Broken };
        }
        Verdict::Proceed
    }

    fn is_dead(&self) -> bool {
        self.lock().dead
    }

    fn opened(&self, path: &Path) {
        let name = name_of(path);
        let mut state = self.lock();
        let known = state.files.get(&name).is_some_and(|image| !image.deleted);
        if !known {
            let durable = std::fs::read(path).unwrap_or_default();
            state.files.insert(name, Image { durable, ..Image::default() });
        }
    }

    fn changed(&self, name: &str, change: Change) {
        self.lock().files.entry(name.to_owned()).or_default().unsynced.push(change);
    }

    fn synced(&self, name: &str) {
        let mut state = self.lock();
        let image = state.files.entry(name.to_owned()).or_default();
        for change in std::mem::take(&mut image.unsynced) {
            apply(&mut image.durable, &change);
        }
    }

    /// Records a failed sync. It has written a part of the data and forgets the rest, so the next
    /// sync does not write it either.
    fn sync_failed(&self, name: &str) {
        let mut state = self.lock();
        let State { files, dice, .. } = &mut *state;
        let image = files.entry(name.to_owned()).or_default();
        for change in std::mem::take(&mut image.unsynced) {
            if dice.roll(2) == 0 {
                apply(&mut image.durable, &change);
            }
        }
    }

    fn deleted(&self, name: &str, for_good: bool) {
        let mut state = self.lock();
        if for_good {
            state.files.remove(name);
        } else if let Some(image) = state.files.get_mut(name) {
            image.deleted = true;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write(at, data) => {
            let end = at + data.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*at..end].copy_from_slice(data);
        }
        Change::Truncate(len) => bytes.resize(*len, 0),
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn disks() -> MutexGuard<'static, HashMap<PathBuf, Arc<Disk>>> {
    static DISKS: OnceLock<Mutex<HashMap<PathBuf, Arc<Disk>>>> = OnceLock::new();
    DISKS.get_or_init(Mutex::default).lock()
}

fn disk_of(path: &Path) -> Option<Arc<Disk>> {
    disks().get(path.parent()?).cloned()
}

/// A small random number generator. The seed is enough to repeat a test.
#[derive(Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// Returns a number from 0 up to, but not including, `below`.
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}
