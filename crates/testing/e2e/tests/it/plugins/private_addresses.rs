//! The command line shows the private addresses that an operator has allowed.

use sa_gateway_kit::{PluginServer, Setup};
use serde_json::json;

use crate::SWITCHBOARD;

#[tokio::test]
async fn people_see_what_was_allowed() {
    let server = PluginServer::echo().await;
    let at = Setup::new().spawn(SWITCHBOARD).await;
    let file = at.dir.path().join("m.json");
    std::fs::write(&file, server.manifest("w", json!({})).to_string()).unwrap();
    let path = file.to_str().unwrap();
    let cli = async |args: &[&str]| {
        let ended = at.cli(args).run().await;
        ended.assert_code(0);
        ended.stdout
    };
    assert!(cli(&["plugin", "check", path]).await.contains("the gateway cannot call"));
    let checked = cli(&["plugin", "check", path, "--allow-private", &server.address]).await;
    assert_eq!(checked.trim(), "it can be added");
    cli(&["plugin", "add", path, "--allow-private", &server.address]).await;
    assert!(cli(&["plugin", "list"]).await.contains(&server.address));
    let shown = cli(&["plugin", "show", "w"]).await;
    let private = shown.lines().find(|line| line.trim_start().starts_with("private"));
    assert!(private.is_some_and(|line| line.contains(&server.address)), "{shown}");
    let doctor = at.cli(&["doctor"]).run().await.stdout;
    assert!(doctor.contains(&format!("\"w\" may access {}", server.address)), "{doctor}");
    assert!(doctor.contains("there are tools of plugins") && !doctor.contains("FIX"), "{doctor}");
    let audit = at.operator().get_text("/v1/audit").await;
    assert!(audit.contains("plugin.private_allowed") && audit.contains(&server.address), "{audit}");
    let again = Setup::new().on(&at);
    at.stop().await;
    let at = again.spawn(SWITCHBOARD).await;
    at.operator().call("w__run", json!({ "city": "x" })).await.result();
}
