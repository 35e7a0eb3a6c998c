//! Files of this gateway that no agent in a sandbox and no node may hand out.

use std::path::{Path, PathBuf};

use sa_vault::secret_file;
use tracing::warn;

use crate::config::Config;

/// Marks the data directory and the configuration file, which may hold keys of models and upstream servers. Machine nodes
/// on this machine refuse to hand out marked files, wherever they are.
pub(crate) fn mark(data_dir: &Path, config_file: Option<&Path>) {
    if let Err(error) = secret_file::mark_directory(data_dir) {
        warn!(%error, dir = %data_dir.display(), "cannot mark the gateway's secret files: nodes on this machine may read them");
    }
    let Some(file) = config_file else { return };
    if let Err(error) = secret_file::mark_file(file) {
        warn!(
            %error,
            file = %file.display(),
            "cannot mark the configuration file as secret: nodes on this machine may read it; keep keys in variables, or \
             make this user its owner"
        );
    }
}

/// Files outside of the data directory that no agent in a sandbox may see.
pub(crate) fn outside_data_dir(config: &Config) -> Vec<PathBuf> {
    config.file.iter().chain(config.tls.iter().map(|tls| &tls.key)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_file_is_marked_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("data")).unwrap();
        for name in ["data/operator.token", "config.toml", "README.md"] {
            std::fs::write(at(name), "").unwrap();
        }
        mark(&at("data"), Some(&at("config.toml")));
        for (name, expected) in [("data/operator.token", true), ("config.toml", true), ("README.md", false)] {
            assert_eq!(secret_file::is_marked_path(&at(name)), expected, "{name}");
        }
        // A file that is not there is no reason to stop.
        mark(&at("data"), Some(&at("missing.toml")));
    }
}
