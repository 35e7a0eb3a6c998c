//! Skill directories are configured, and the command line lists their skills.

use std::fs;
use std::path::Path;

use sa_gateway_kit::{Hello, Setup};
use serde_json::json;

use crate::SWITCHBOARD;

fn write(dir: &Path, folder: &str, text: &str) {
    fs::create_dir_all(dir.join(folder)).unwrap();
    fs::write(dir.join(folder).join("SKILL.md"), text).unwrap();
}

fn laptop() -> Hello {
    Hello::new("laptop")
        .describe(json!({ "name": "Bash", "capabilities": ["shell.exec"] }))
        .with("host", json!({ "role": "execution", "os": "linux", "env": ["HOME"] }))
}

#[tokio::test]
async fn directories_are_configured_and_the_command_line_shows_what_is_in_them() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(
        one.path(),
        "deploy",
        "---\nname: deploy\ndescription: Ships it.\nrequires: {capabilities: [shell.exec, x.y]}\n---\n",
    );
    write(two.path(), "review", "---\nname: review\ndescription: \"Reads \\x1b[31mcode.\"\n---\n");
    fs::write(two.path().join("file"), "").unwrap();
    let file = two.path().join("file");
    let config = format!("[skills]\ndirs = [{:?}, {:?}, {:?}]", one.path(), two.path(), file);
    let gateway = Setup::new().config(&config).spawn(SWITCHBOARD).await;
    let _laptop = laptop().connect(&gateway).await;
    let shown = gateway.cli(&["skills"]).run().await;
    shown.assert_code(0);
    assert!(shown.stdout.contains("laptop lacks capabilities x.y"), "{}", shown.stdout);
    assert!(
        shown.stdout.contains("eligible on laptop") && shown.stdout.contains("\\u{1b}"),
        "{}",
        shown.stdout
    );
    assert!(shown.stderr.contains("cannot be read"), "{}", shown.stderr);
    let listed = gateway.cli(&["skills", "--json"]).run().await.json();
    assert_eq!(listed["skills"].as_array().unwrap().len(), 2);
    gateway.stop().await;
}
