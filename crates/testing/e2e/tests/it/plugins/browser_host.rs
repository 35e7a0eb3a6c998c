//! Plugin pages run in a real browser. Pages made with this project's SDK and with the published
//! one work in the host. Other frames get nothing, and no page can escape its frame. The example
//! plugins are shown. The tests are TypeScript, next to the library; `cargo xtask test` installs
//! the browser and the SDKs.

use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

#[tokio::test]
async fn pages_in_frames() {
    let program = std::env::current_exe().unwrap();
    let pages = program.ancestors().nth(3).unwrap().join("plugin-pages");
    assert!(
        pages.join("node_modules").is_dir(),
        "{} is missing; run: cargo xtask test",
        pages.display()
    );
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let output = Command::new("npm")
        .args(["run", "test:browser", "--workspace", "@switchboard/plugin-host"])
        .current_dir(root)
        .env("SWITCHBOARD_PLUGIN_PAGES", pages)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complaint}");
}
