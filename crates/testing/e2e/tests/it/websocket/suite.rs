//! Runs Autobahn's test suite and judges its results. `cargo xtask test` installs it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sa_gateway_kit::count;
use serde_json::{Value, json};
use tokio::process::Command;

/// Accepted outcomes. Compression is not offered, so the suite skips its cases. An encoding error
/// in the middle of a frame may be reported at the frame's end, which the suite calls not strict.
const FINE: [&str; 4] = ["OK", "NON-STRICT", "INFORMATIONAL", "UNIMPLEMENTED"];

/// After a clean close, the server should close the TCP connection. On a busy machine the suite,
/// which waits for half a second, may be first.
const IMPATIENT: &str = "FAILED BY CLIENT";

/// The suite accepts a peer that disconnects without a close frame, but a protocol violation should
/// be answered with a close code. Only in this case the suite closes without a code, and so does
/// the answer.
const WITHOUT_A_CODE: &str = "7.3.1";

/// The groups about single frames: framing, pings, reserved bits, opcodes, fragments, UTF-8,
/// closing, and others.
const ORDINARY: [&str; 8] = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*"];

/// Groups with messages of up to 16 MiB, in smaller and smaller fragments, and with compression.
const LONG: [&str; 3] = ["9.*", "12.*", "13.*"];

pub(crate) struct Suite {
    place: PathBuf,
    is_long: bool,
}

impl Suite {
    /// Returns the directory where `cargo xtask test` installs it, or `None` if it is missing and
    /// its tests may be skipped.
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

    /// Returns a command that runs one of the suite's programs in its interpreter. All settings
    /// except `mode` are in a file.
    pub(crate) fn command(
        &self,
        program: [&str; 2],
        mode: &str,
        specification: Value,
        directory: &Path,
    ) -> Command {
        let Value::Object(mut wanted) = specification else {
            panic!("not an object: {specification}")
        };
        let cases: Vec<&str> =
            ORDINARY.into_iter().chain(LONG.into_iter().filter(|_| self.is_long)).collect();
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

    /// Returns the interpreter's own libraries, which the system no longer has.
    fn libraries(&self) -> PathBuf {
        let libraries = std::fs::read_dir(self.place.join("python/usr/lib")).unwrap();
        let mut found = libraries.map(|entry| entry.unwrap().path());
        found.find(|path| path.to_string_lossy().ends_with("-linux-gnu")).expect("libraries")
    }

    /// Reads the result of each case, and fails unless all are accepted.
    pub(crate) fn judge(&self, directory: &Path, agent: &str) {
        let results = results(directory, agent);
        let mut outcomes = BTreeMap::<&str, usize>::new();
        for result in results.values() {
            for kind in ["behavior", "behaviorClose"] {
                *outcomes.entry(result[kind].as_str().unwrap()).or_default() += 1;
            }
        }
        eprintln!("{agent}, {} cases: {outcomes:?}", results.len());
        assert!(
            results.len() > if self.is_long { 500 } else { 200 },
            "only {} cases were run",
            results.len()
        );
        let wrong = wrong(directory, agent);
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

/// Returns the results of all failed cases.
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
    let index = std::fs::read(reports(directory).join("index.json"))
        .expect("the suite has written no report");
    let mut index: Value = serde_json::from_slice(&index).unwrap();
    serde_json::from_value(index[agent].take()).unwrap()
}

fn reports(directory: &Path) -> PathBuf {
    directory.join("reports")
}
