//! A directory that belongs to the node's commands alone.

use std::fs::{DirBuilder, remove_dir_all};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::machine::StartError;

/// A home and a place for temporary files, for commands that see no others. Gone with this value.
#[derive(Debug)]
pub(super) struct PrivateDir(PathBuf);

impl PrivateDir {
    pub(super) fn new() -> Result<Self, StartError> {
        let base = std::env::temp_dir();
        let made = base.canonicalize().and_then(|base| {
            let path = base.join(format!("switchboard-node-{}", uuid::Uuid::new_v4().simple()));
            let mut private = DirBuilder::new();
            private.mode(0o700).create(&path)?;
            // From here on it is removed whatever happens.
            let dir = Self(path);
            private.create(dir.0.join("home"))?;
            private.create(dir.0.join("tmp"))?;
            Ok(dir)
        });
        made.map_err(|error| StartError::Directory { what: "the directory for temporary files", path: base, error })
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        let _ = remove_dir_all(&self.0);
    }
}
