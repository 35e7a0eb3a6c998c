//! The sandbox of agents: converts their configuration to a policy, and checks that it is
//! possible.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use sa_sandbox::{Bind, Policy, marked};

use crate::agent::AgentCommand;
use crate::socket::DIRECTORY;

/// The paths of the session's socket and of this program in a sandbox.
pub(crate) const RELAY: &str = "/run/switchboard/relay.sock";
pub(crate) const PROGRAM: &str = "/run/switchboard/switchboard";

/// The configured paths of an agent, with their real paths as they were when the gateway started.
/// Another agent may be able to change a directory above them, and could replace a part of a path
/// by a link.
#[derive(Debug, Clone, Default)]
pub(crate) struct Paths {
    /// `None` if each session has its own directory.
    pub(crate) dir: Option<PathBuf>,
    read: BTreeMap<PathBuf, PathBuf>,
    /// The credentials in homes that are in these paths, but hidden from the agent.
    credentials: Vec<PathBuf>,
}

impl Paths {
    pub(crate) fn of(command: &AgentCommand) -> Self {
        let dir =
            Some(&command.dir).filter(|dir| !dir.is_empty()).map(|dir| pinned(Path::new(dir)));
        let read = command.read.iter().map(PathBuf::from);
        let read: BTreeMap<PathBuf, PathBuf> =
            read.map(|path| (path.clone(), pinned(&path))).collect();
        let given: Vec<PathBuf> = read.values().chain(&dir).cloned().collect();
        let credentials = sa_sandbox::credentials(&sa_sandbox::homes(), &given);
        Self { dir, read, credentials }
    }

    /// Returns the paths of all agents with a sandbox. No path may lead through a link in the
    /// directory of such an agent, because that agent may have made the link.
    pub(crate) fn of_all(
        agents: &BTreeMap<String, AgentCommand>,
    ) -> Result<BTreeMap<String, Self>, String> {
        let confined = || agents.iter().filter(|(_, command)| command.sandbox);
        let all: BTreeMap<String, Self> =
            confined().map(|(name, command)| (name.clone(), Self::of(command))).collect();
        for (name, command) in confined() {
            let configured =
                command.read.iter().chain([&command.dir]).filter(|path| !path.is_empty());
            for path in configured.map(Path::new) {
                let is_open = path.canonicalize().is_err()
                    && path.components().any(|part| part == Component::ParentDir);
                if is_open {
                    return Err(format!(
                        "the path {} of the agent \"{name}\" does not exist and contains \"..\"; use a path without it",
                        path.display()
                    ));
                }
                let through = all.iter().find(|(_, owner)| {
                    owner.dir.as_ref().is_some_and(|dir| leads_through_link_in(path, dir))
                });
                if let Some((owner, _)) = through {
                    return Err(format!(
                        "the path {} of the agent \"{name}\" leads through a symbolic link in the directory of the agent \
                         \"{owner}\", which can change the link; use a path without links there",
                        path.display()
                    ));
                }
            }
        }
        for (name, paths) in &all {
            // The directory would be mounted inside of a path that another agent can change.
            let inside = |owner: &Self| {
                let (Some(dir), Some(outer)) = (&paths.dir, &owner.dir) else { return false };
                dir != outer
                    && dir.starts_with(outer)
                    && paths.read.values().any(|read| dir.starts_with(read))
            };
            if let Some((owner, _)) = all.iter().find(|(_, owner)| inside(owner)) {
                return Err(format!(
                    "the agent \"{name}\" reads a directory above its dir, and the agent \"{owner}\" can change its dir; \
                     remove that directory from its read, or use another dir"
                ));
            }
        }
        Ok(all)
    }
}

/// Returns whether a path is below this real directory by its name, but not by its real path.
fn leads_through_link_in(path: &Path, directory: &Path) -> bool {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let above = path.ancestors().find(|above| pinned(above) == *directory);
    let below = above.and_then(|above| path.strip_prefix(above).ok());
    below.is_some_and(|below| pinned(&path) != directory.join(below))
}

/// Returns the real path, also of a path that does not exist yet.
fn pinned(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let found = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    match found {
        Some((above, real)) if above != path => {
            real.join(path.strip_prefix(above).unwrap_or(Path::new("")))
        }
        Some((_, real)) => real,
        None => path,
    }
}

/// Returns the policy that all sessions of an agent share. The secrets are files and directories
/// of the gateway, its data directory first. None of them may be in the agent's directory: the
/// agent could rename a directory above a hidden file, and then read the file.
pub(crate) fn policy(
    command: &AgentCommand,
    paths: &Paths,
    secrets: &[PathBuf],
) -> Result<Policy, String> {
    let secrets: Vec<PathBuf> = secrets.iter().map(|path| real(path)).collect();
    let within = |dir: &PathBuf| secrets.iter().find(|secret| secret.starts_with(dir));
    if let Some((dir, secret)) = paths.dir.as_ref().and_then(|dir| Some((dir, within(dir)?))) {
        return Err(format!(
            "dir: {} contains {}, a secret file of the gateway that the agent could read there; choose another dir, \
             such as one project's directory, or move the gateway's files elsewhere",
            dir.display(),
            secret.display()
        ));
    }
    let mut policy = Policy::new(command.network);
    policy.unix_sockets = true;
    for (path, real) in &paths.read {
        if secrets.iter().any(|secret| real.starts_with(secret)) {
            return Err(format!(
                "read: {} is a secret file of the gateway, which agents must not read",
                path.display()
            ));
        }
        policy.readable.push(path.clone());
    }
    policy.pinned.clone_from(&paths.read);
    // Each session also hides the ones that exist when it starts. These stay hidden even if an
    // agent removes the link that leads to them.
    let is_real = |path: &&PathBuf| path.canonicalize().is_ok_and(|real| real == **path);
    let credentials = paths.credentials.iter().filter(is_real).cloned();
    Ok(policy.hiding(secrets.into_iter().chain(credentials)))
}

/// Returns the directories that sandboxed agents can write to and that may be in the data
/// directory. The gateway must not mark anything there: an agent's files are not secrets of the
/// gateway, and an agent cannot start in a directory with marked files.
pub fn agent_directories(data_dir: &Path, agents: &BTreeMap<String, AgentCommand>) -> Vec<PathBuf> {
    let configured = agents.values().filter(|agent| agent.sandbox && !agent.dir.is_empty());
    // The directories of sessions. Their sockets are beside them, and need no mark.
    std::iter::once(data_dir.join(DIRECTORY))
        .chain(configured.map(|agent| PathBuf::from(&agent.dir)))
        .collect()
}

/// Hides the marked secret files of other gateways, which are searched where the agent reads and
/// writes. Blocks.
pub(crate) fn without_marked(policy: Policy, read: &[String]) -> Result<Policy, String> {
    let directories: Vec<PathBuf> =
        policy.writable.iter().cloned().chain(read.iter().map(PathBuf::from)).collect();
    policy.without_marked(marked::search(directories.iter().map(PathBuf::as_path))?)
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Adds the real directory, the socket and the program of one session to the policy.
pub(crate) fn of_session(mut policy: Policy, dir: &Path, socket: &Path, program: &Path) -> Policy {
    policy.writable.push(dir.to_owned());
    policy.pinned.insert(dir.to_owned(), dir.to_owned());
    for (source, target) in [(socket, RELAY), (program, PROGRAM)] {
        policy.binds.push(Bind { source: source.to_owned(), target: target.into() });
    }
    policy
}

/// Rejects a program that exists, but that the sandbox does not show. The system would only
/// report that it does not exist.
pub(crate) fn check_program(policy: &Policy, command: &AgentCommand) -> io::Result<()> {
    let program = command.command.first().map(Path::new).filter(|program| program.is_absolute());
    match program {
        Some(program) if program.exists() && !policy.shows(program) => {
            let folder = program.parent().unwrap_or(program).display();
            Err(io::Error::other(format!(
                "the sandbox has no access to it; add read = [\"{folder}\"]"
            )))
        }
        _ => Ok(()),
    }
}

/// Checks that an agent may do no more than the sandboxed agent that asks for it. The error names
/// the first additional permission.
pub(crate) fn check_confinement(
    (calling, own): (&AgentCommand, &Paths),
    (called, its): (&AgentCommand, &Paths),
) -> Result<(), String> {
    if !called.sandbox {
        return Err("has no sandbox".into());
    }
    if called.network && !calling.network {
        return Err("has network access, which the calling agent does not have".into());
    }
    let within = |path: &PathBuf, roots: &[&PathBuf]| {
        roots.iter().any(|root| path.starts_with(root))
            && !own.credentials.iter().any(|hidden| path.starts_with(hidden))
    };
    let mut roots: Vec<&PathBuf> = own.dir.iter().collect();
    if its.dir.as_ref().is_some_and(|dir| !within(dir, &roots)) {
        return Err(format!("works in {}, which is not in the calling agent's dir", called.dir));
    }
    roots.extend(own.read.values());
    match its.read.iter().find(|(_, real)| !within(real, &roots)) {
        Some((path, _)) => {
            Err(format!("reads {}, which the calling agent cannot read", path.display()))
        }
        None => Ok(()),
    }
}

/// Tries the sandboxes of all agents that have one, each in a separate process. The program must
/// call [`sa_sandbox::run_if_asked`]. The error names the agent and the missing feature.
pub(crate) fn check(
    program: &Path,
    secrets: &[PathBuf],
    agents: &BTreeMap<String, AgentCommand>,
) -> Result<(), String> {
    for (name, paths) in &Paths::of_all(agents)? {
        policy(&agents[name], paths, secrets).and_then(|policy| sa_sandbox::probe(program, &policy)).map_err(|why| {
            format!("cannot set up the sandbox of the agent \"{name}\": {why}; to run the agent without a sandbox, set sandbox = false")
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sa_vault::secret_file;
    use serde_json::json;

    use super::*;

    fn agent(dir: &Path, read: &[&Path]) -> AgentCommand {
        serde_json::from_value(
            json!({ "command": ["x"], "sandbox": true, "dir": dir, "read": read }),
        )
        .unwrap()
    }

    /// Mounts hide a secret at its path, and an agent can rename any directory above it.
    #[test]
    fn no_agent_works_in_a_directory_that_holds_a_secret_of_the_gateway() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir_all(at("home/sub/data")).unwrap();
        std::fs::create_dir_all(at("home/work")).unwrap();
        std::fs::write(at("home/sub/config.toml"), "").unwrap();
        std::os::unix::fs::symlink(at("home"), at("link")).unwrap();
        let data = [at("home/sub/data")];
        let config = [at("elsewhere"), at("home/sub/config.toml")];
        for (dir, secrets) in
            [("home", &data[..]), ("link", &data), ("home/sub/data", &data), ("home", &config)]
        {
            let command = agent(&at(dir), &[]);
            let why = policy(&command, &Paths::of(&command), secrets).unwrap_err();
            let secret = secrets.last().unwrap().display().to_string();
            assert!(
                why.contains(&secret) && why.contains(&real(&at(dir)).display().to_string()),
                "{dir}: {why}"
            );
            let all = BTreeMap::from([("helper".to_owned(), agent(&at(dir), &[]))]);
            let why = check(Path::new("/bin/true"), secrets, &all).unwrap_err();
            assert!(why.contains("\"helper\"") && why.contains(&secret), "{why}");
        }
        let of = |command: AgentCommand| policy(&command, &Paths::of(&command), &data);
        let allowed = of(agent(&at("home/work"), &[&at("home")])).unwrap();
        assert!(allowed.hidden.contains(&data[0]));
        assert!(of(agent(&at("home/work"), &[&at("home/sub/data")])).is_err());
    }

    #[test]
    fn an_agent_cannot_move_the_paths_of_another_one() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for dir in ["a/sub", "a/lib", "victim"] {
            std::fs::create_dir_all(at(dir)).unwrap();
        }
        std::os::unix::fs::symlink(at("a"), at("name-of-a")).unwrap();
        let agents = |dir: &str, read: &str| {
            BTreeMap::from([
                ("a".to_owned(), agent(&at("a"), &[])),
                ("b".to_owned(), agent(&at(dir), &[&at(read)])),
            ])
        };
        let before = Paths::of_all(&agents("a/sub", "a/lib")).unwrap();
        // Links outside of an agent's directory are not in its power.
        assert!(Paths::of_all(&agents("name-of-a/sub", "victim")).is_ok());
        let check = |called: &Paths| {
            let (calling, b) = (agent(&at("a"), &[]), agent(&at("a/sub"), &[&at("a/lib")]));
            check_confinement((&calling, &before["a"]), (&b, called))
        };
        assert_eq!(check(&before["b"]), Ok(()));

        for name in ["sub", "lib"] {
            std::fs::rename(at("a").join(name), at("a").join("old")).unwrap();
            std::os::unix::fs::symlink(at("victim"), at("a").join(name)).unwrap();
            // The real paths of the start still apply, and the sandbox refuses the link.
            assert_eq!(check(&before["b"]), Ok(()));
            let why = Paths::of_all(&agents("a/sub", "a/lib")).unwrap_err();
            assert!(why.contains("symbolic link in the directory of the agent \"a\""), "{why}");
            std::fs::remove_file(at("a").join(name)).unwrap();
            std::fs::rename(at("a/old"), at("a").join(name)).unwrap();
        }
        for refused in ["a/new/../../victim", "a/../missing"] {
            assert!(Paths::of_all(&agents(refused, "a/lib")).unwrap_err().contains(".."));
        }
        // A directory that another agent can change must not be mounted below a readable one.
        let why = Paths::of_all(&agents("a/sub", "a")).unwrap_err();
        assert!(why.contains("reads a directory above its dir"), "{why}");
        // A missing directory is created later, and is not a link.
        assert!(Paths::of_all(&agents("a/new/deep", "a/lib")).is_ok());
        let command = agent(&at("a/sub"), &[&at("a/lib")]);
        let policy = policy(&command, &before["b"], &[]).unwrap();
        assert_eq!(policy.pinned, BTreeMap::from([(at("a/lib"), real(&at("a/lib")))]));
    }

    #[test]
    fn an_agent_cannot_use_another_one_to_read_credentials_in_its_home() {
        for home in sa_sandbox::homes().iter().filter(|home| home.parent().is_some()) {
            let (calling, key) = (agent(home, &[]), home.join(".ssh"));
            let own = Paths::of(&calling);
            assert!(own.credentials.contains(&key), "{own:?}");
            let check = |called: AgentCommand| {
                check_confinement((&calling, &own), (&called, &Paths::of(&called)))
            };
            assert_eq!(check(agent(&home.join("project"), &[home])), Ok(()));
            for read in [key.clone(), key.join("id_rsa"), home.join(".netrc")] {
                let why = check(agent(home, &[&read])).unwrap_err();
                assert!(why.contains("which the calling agent cannot read"), "{why}");
                assert!(check(agent(&read, &[])).is_err());
            }
            // Such a path can be given to an agent by name.
            let named = Paths::of(&agent(home, &[&key]));
            assert!(!named.credentials.contains(&key), "{named:?}");
        }
    }

    #[test]
    fn marked_files_of_other_gateways_are_refused_or_hidden() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir_all(at("work/inner/data")).unwrap();
        secret_file::mark_directory(&at("work/inner/data")).unwrap();
        let base = Policy::new(false);
        let why = without_marked(base.with_writable(&at("work")), &[]).unwrap_err();
        assert!(why.contains("work/inner/data") && why.contains("secret files"), "{why}");
        let read = [at("work").display().to_string()];
        let hiding = without_marked(base.with_writable(&at("elsewhere")), &read).unwrap();
        assert!(hiding.hidden.contains(&at("work/inner/data")));
    }
}
