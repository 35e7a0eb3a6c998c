//! Autobahn's test suite: how it is run, and what counts as a failure. `cargo xtask test` installs it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sa_testkit::count;
use serde_json::{Value, json};
use tokio::process::Command;

/// What an outcome may be. Nobody here offers compression, whose cases are then not run by the suite; and what breaks off
/// a text in the middle of a frame for its encoding may do so at the frame's end, which it calls not strict.
const FINE: [&str; 4] = ["OK", "NON-STRICT", "INFORMATIONAL", "UNIMPLEMENTED"];

/// After a clean close it is the server that should hang up, and on a busy machine the suite, which waits for half a second,
/// may be first.
const IMPATIENT: &str = "FAILED BY CLIENT";

/// The suite would not mind a peer that hangs up on it without a word, but whoever breaks the protocol should hear why. In
/// this case alone there is nothing to say: it closes without a code, and that is the answer, too.
const WITHOUT_A_CODE: &str = "7.3.1";

/// All that there is to be said of a frame: framing, pings, reserved bits, opcodes, fragments, UTF-8, closing, the rest.
const ORDINARY: [&str; 8] = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*"];

/// In these groups are messages of up to 16 MiB, in ever smaller fragments, and compression.
const LONG: [&str; 3] = ["9.*", "12.*", "13.*"];

pub(crate) struct Suite {
    place: PathBuf,
    is_long: bool,
}

impl Suite {
    /// Where `cargo xtask test` puts it. `None` if it cannot be had, and whoever runs the tests knows.
    pub(crate) fn find() -> Option<Self> {
        let is_long = count("SWITCHBOARD_AUTOBAHN_ALL", 0) > 0;
        let program = std::env::current_exe().unwrap();
        let place = program.ancestors().nth(3).unwrap().join("autobahn");
        if place.join("installed").is_file() {
            return Some(Self { place, is_long });
        }
        sa_test_needs::missing(
            "autobahn",
            "Autobahn's test suite is not installed; cargo xtask test does, or says why not",
        );
        None
    }

    /// The suite's interpreter, to be told which program of the suite's to run, with all that it is asked for but
    /// `mode` in a file.
    pub(crate) fn command(&self, program: [&str; 2], mode: &str, specification: Value, directory: &Path) -> Command {
        let Value::Object(mut wanted) = specification else { panic!("not an object: {specification}") };
        let cases: Vec<&str> = ORDINARY.into_iter().chain(LONG.into_iter().filter(|_| self.is_long)).collect();
        wanted.insert("outdir".into(), json!(reports(directory)));
        wanted.insert("cases".into(), json!(cases));
        wanted.insert("exclude-cases".into(), json!([]));
        wanted.insert("exclude-agent-cases".into(), json!({}));
        wanted.insert("options".into(), json!({ "failByDrop": false }));
        let file = directory.join("suite.json");
        std::fs::write(&file, Value::Object(wanted).to_string()).unwrap();
        let mut command = Command::new(self.place.join("python/usr/bin/python2.7"));
        command
            .args(["-W", "ignore"])
            .args(program)
            .args(["--mode", mode, "--webport", "0", "--spec"])
            .arg(file)
            .env("LD_LIBRARY_PATH", self.libraries())
            .env("PYTHONUSERBASE", self.place.join("packages"))
            .stdin(Stdio::null())
            .current_dir(directory)
            .kill_on_drop(true);
        command
    }

    /// The interpreter's own, which the system has no more.
    fn libraries(&self) -> PathBuf {
        let libraries = std::fs::read_dir(self.place.join("python/usr/lib")).unwrap();
        let mut found = libraries.map(|entry| entry.unwrap().path());
        found.find(|path| path.to_string_lossy().ends_with("-linux-gnu")).expect("libraries")
    }

    /// Reads what came of each case, and wants all to be well.
    pub(crate) fn judge(&self, directory: &Path, agent: &str) {
        let results = results(directory, agent);
        let mut outcomes = BTreeMap::<&str, usize>::new();
        for result in results.values() {
            for kind in ["behavior", "behaviorClose"] {
                *outcomes.entry(result[kind].as_str().unwrap()).or_default() += 1;
            }
        }
        eprintln!("{agent}, {} cases: {outcomes:?}", results.len());
        assert!(results.len() > if self.is_long { 500 } else { 200 }, "only {} cases were run", results.len());
        let wrong = wrong(directory, agent);
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

/// What the suite says of each case that is not well.
pub(crate) fn wrong(directory: &Path, agent: &str) -> BTreeMap<String, Value> {
    let is_wrong = |(case, result): &(String, Value)| {
        let is_fine = |kind: &str| FINE.contains(&result[kind].as_str().unwrap());
        let closed_well = is_fine("behaviorClose") || result["behaviorClose"] == IMPATIENT;
        let said_why = !result["remoteCloseCode"].is_null() || case == WITHOUT_A_CODE;
        !(is_fine("behavior") && closed_well && said_why)
    };
    results(directory, agent).into_iter().filter(is_wrong).collect()
}

fn results(directory: &Path, agent: &str) -> BTreeMap<String, Value> {
    let index = std::fs::read(reports(directory).join("index.json")).expect("the suite has written no report");
    let mut index: Value = serde_json::from_slice(&index).unwrap();
    serde_json::from_value(index[agent].take()).unwrap()
}

fn reports(directory: &Path) -> PathBuf {
    directory.join("reports")
}
