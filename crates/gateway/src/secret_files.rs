//! Protects the gateway's secret files from sandboxed agents and from nodes.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

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

/// Runs a task in a separate thread, and never waits for it. A file system may not answer, such as
/// one on the network.
#[derive(Debug, Default)]
pub(crate) struct Detached(Option<JoinHandle<()>>);

impl Detached {
    /// Starts a task unless the previous one is still running. Returns whether it was started. The
    /// end of the program does not wait for the task either.
    pub(crate) fn start(&mut self, task: impl FnOnce() + Send + 'static) -> bool {
        if self.0.as_ref().is_some_and(|running| !running.is_finished()) {
            return false;
        }
        let thread = std::thread::Builder::new().name("mark-secrets".into()).spawn(task);
        self.0 = thread.inspect_err(|error| warn!(%error, "cannot mark new secret files")).ok();
        self.0.is_some()
    }
}

fn mark_each(config: &Config, failed: impl Fn(&Path, std::io::Error)) {
    let dir = &config.data_dir;
    let sections = config.settings.sections();
    let open: Vec<PathBuf> =
        sections.into_iter().flat_map(|(_, section)| section.open_directories(dir)).collect();
    if let Err(error) = secret_file::mark_directory_except(dir, &open) {
        failed(&config.data_dir, error);
    }
    for file in config.secret_files() {
        // A file that is missing or not a regular file is reported by its reader.
        if file.is_file()
            && let Err(error) = secret_file::mark_file(&file)
        {
            failed(&file, error);
        }
    }
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
        let hidden = configured(dir.path()).secret_files();
        for name in SECRETS {
            assert!(hidden.contains(&dir.path().join(name)), "{name}: {hidden:?}");
        }
        assert!(!hidden.contains(&dir.path().join("cert.pem")), "{hidden:?}");
    }

    /// Returns a configuration with agents that have their own, a configured and a shared
    /// directory.
    fn with_agents(dir: &Path) -> Config {
        let text = format!(
            "[data]\ndir = \"{data}\"\n\
             [sessions.agents.own]\ncommand = [\"x\"]\nsandbox = true\n\
             [sessions.agents.project]\ncommand = [\"x\"]\nsandbox = true\ndir = \"{data}/projects/one\"\n\
             [sessions.agents.free]\ncommand = [\"x\"]\ndir = \"{data}/attachments\"\n",
            data = dir.join("data").display()
        );
        std::fs::write(dir.join("config.toml"), text).unwrap();
        let nothing = std::iter::empty::<(std::ffi::OsString, std::ffi::OsString)>();
        Config::resolve(&Layers::read(Some(&dir.join("config.toml")), nothing, &[]).unwrap())
            .unwrap()
    }

    /// The working directories are created and removed while the gateway runs. An agent with marked
    /// files in its directory cannot start again.
    #[test]
    fn directories_of_agents_are_not_marked() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let config = with_agents(dir.path());
        for name in ["attachments/channel", "projects/one/src"] {
            std::fs::create_dir_all(data.join(name)).unwrap();
        }
        mark(&config);
        let sockets = sa_relay::socket_dir(&config.data_dir).unwrap();
        let work = sockets.join("ses_0.work");
        std::fs::create_dir_all(work.join("deep")).unwrap();
        let project = data.join("projects/one");
        let secrets = [data.join("attachments/channel/one"), data.join("switchboard.db")];
        let own = [work.join("file"), work.join("deep/file"), project.join("src/main.rs")];
        for file in secrets.iter().chain(&own) {
            std::fs::write(file, "").unwrap();
        }
        mark_again(&config);
        for secret in secrets.iter().chain([&data, &data.join("projects")]) {
            assert!(secret_file::is_marked_path(secret), "{}", secret.display());
        }
        for path in own.iter().chain([&work, &work.join("deep"), &project, &project.join("src")]) {
            assert!(!secret_file::is_marked_path(path), "{}", path.display());
        }
        let searched = sa_sandbox::marked::search([work.as_path(), project.as_path()]).unwrap();
        assert!(!searched.iter().any(|found| found.starts_with(dir.path())), "{searched:?}");
    }

    #[test]
    fn housekeeping_does_not_wait_for_marking() {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (ended, end) = std::sync::mpsc::channel();
        let mut marking = Detached::default();
        let done = ended.clone();
        assert!(marking.start(move || {
            let _ = released.recv();
            done.send("first").unwrap();
        }));
        // Only one task runs at a time.
        assert!(!marking.start(|| panic!("a second task was started")));
        release.send(()).unwrap();
        assert_eq!(end.recv(), Ok("first"));
        let mut next = || {
            let done = ended.clone();
            marking.start(move || done.send("next").unwrap())
        };
        while !next() {
            std::thread::yield_now();
        }
        assert_eq!(end.recv(), Ok("next"));
    }

    #[test]
    fn all_of_this_holds_for_an_unprivileged_user() {
        sa_test_needs::repeat_as_nobody(module_path!(), &[]);
    }
}
