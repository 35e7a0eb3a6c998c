//! Protects the gateway's secret files from sandboxed agents and from nodes.

use std::path::{Path, PathBuf};

use sa_vault::secret_file;
use tracing::warn;

use crate::config::Config;

/// Marks the data directory, and the files with secrets outside of it. Machine nodes on this
/// machine refuse to return marked files, wherever they are.
pub(crate) fn mark(config: &Config) {
    mark_each(config, |path, error| {
        warn!(
            %error,
            path = %path.display(),
            "cannot mark a file as secret: nodes on this machine may read it; make this user its owner, or keep secrets in \
             environment variables"
        );
    });
}

/// Marks files that were created or replaced since the start, such as a renewed TLS key. Errors
/// were reported at the start.
pub(crate) fn mark_again(config: &Config) {
    mark_each(config, |_, _| {});
}

fn mark_each(config: &Config, failed: impl Fn(&Path, std::io::Error)) {
    if let Err(error) = secret_file::mark_directory(&config.data_dir) {
        failed(&config.data_dir, error);
    }
    for file in outside_data_dir(config) {
        // Opening a pipe would block. A missing file is reported by its reader.
        if file.is_file()
            && let Err(error) = secret_file::mark_file(&file)
        {
            failed(&file, error);
        }
    }
}

/// Returns the files outside of the data directory that sandboxed agents must not see: the
/// configuration, the TLS key, and the files that the configuration names for secrets.
pub(crate) fn outside_data_dir(config: &Config) -> Vec<PathBuf> {
    let settings = &config.settings;
    let upstream = settings.upstream.values().flat_map(sa_upstream::Spec::secret_files);
    let models = settings.models.values().flat_map(sa_chat::Spec::secret_files);
    let named = upstream.chain(models).map(|path| std::path::absolute(path).unwrap_or(path.into()));
    let own = config.file.iter().chain(config.tls.iter().map(|tls| &tls.key)).cloned();
    let mut files: Vec<PathBuf> = own.chain(named).collect();
    files.sort();
    files.dedup();
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::layers::Layers;

    /// Returns a configuration with every kind of file that contains a secret.
    fn configured(dir: &Path) -> Config {
        let at = |name: &str| dir.join(name);
        let shown = |name: &str| at(name).display().to_string();
        std::fs::create_dir(at("data")).unwrap();
        for name in [
            "data/operator.token",
            "README.md",
            "cert.pem",
            "key.pem",
            "bearer",
            "variable",
            "header",
            "client",
            "api_key",
            "model_header",
        ] {
            std::fs::write(at(name), "").unwrap();
        }
        let text = format!(
            "[data]\ndir = \"{}\"\n[server]\ntls_cert = \"{}\"\ntls_key = \"{}\"\n\
             [upstream.web]\nurl = \"https://a.example\"\nbearer = \"file:{}\"\nheaders = {{ x = \"file:{}\", y = \"plain\" }}\n\
             [upstream.login]\nurl = \"https://b.example\"\noauth = {{ client_id = \"i\", client_secret = \"file:{}\" }}\n\
             [upstream.program]\ncommand = [\"x\"]\nenv = {{ A = \"file:{}\", B = \"file:/nonexistent\" }}\n\
             [models.m]\nbase_url = \"https://c.example\"\napi_key = \"file:{}\"\nheaders = {{ z = \"file:{}\" }}\n",
            shown("data"),
            shown("cert.pem"),
            shown("key.pem"),
            shown("bearer"),
            shown("header"),
            shown("client"),
            shown("variable"),
            shown("api_key"),
            shown("model_header"),
        );
        std::fs::write(at("config.toml"), text).unwrap();
        let nothing = std::iter::empty::<(std::ffi::OsString, std::ffi::OsString)>();
        Config::resolve(&Layers::read(Some(&at("config.toml")), nothing, &[]).unwrap()).unwrap()
    }

    const SECRETS: [&str; 8] = [
        "config.toml",
        "key.pem",
        "bearer",
        "variable",
        "header",
        "client",
        "api_key",
        "model_header",
    ];

    #[test]
    fn every_file_with_secrets_is_marked_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let config = configured(dir.path());
        mark(&config);
        let marked = |name: &str| secret_file::is_marked_path(&dir.path().join(name));
        for name in SECRETS.into_iter().chain(["data/operator.token"]) {
            assert!(marked(name), "{name}");
        }
        for name in ["README.md", "cert.pem"] {
            assert!(!marked(name), "{name}");
        }
        // A missing file is not an error. A replaced file is marked again.
        std::fs::remove_file(dir.path().join("config.toml")).unwrap();
        std::fs::write(dir.path().join("new.pem"), "").unwrap();
        std::fs::rename(dir.path().join("new.pem"), dir.path().join("key.pem")).unwrap();
        std::fs::write(dir.path().join("data/store.db-wal"), "").unwrap();
        assert!(!marked("key.pem") && !marked("data/store.db-wal"));
        mark_again(&config);
        assert!(marked("key.pem") && marked("data/store.db-wal"));
    }

    #[tokio::test]
    async fn a_gateway_marks_its_files_when_it_starts() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        std::fs::create_dir_all(data.join("attachments/channel")).unwrap();
        std::fs::write(data.join("attachments/channel/one"), "").unwrap();
        let flags = [("data.dir", data.clone().into_os_string())];
        let layers = Layers::read(None, std::iter::empty(), &flags).unwrap();
        let config = Config::resolve(&layers).unwrap();
        let gateway = crate::assemble::assemble(config).await.unwrap();
        for name in ["", "operator.token", "switchboard.db", "attachments/channel/one"] {
            assert!(secret_file::is_marked_path(&data.join(name)), "{name}");
        }
        gateway.shut_down().await;
        gateway.store.shutdown().await.unwrap();
    }

    #[test]
    fn agents_in_a_sandbox_see_none_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let hidden = outside_data_dir(&configured(dir.path()));
        for name in SECRETS {
            assert!(hidden.contains(&dir.path().join(name)), "{name}: {hidden:?}");
        }
        assert!(!hidden.contains(&dir.path().join("cert.pem")), "{hidden:?}");
    }
}
