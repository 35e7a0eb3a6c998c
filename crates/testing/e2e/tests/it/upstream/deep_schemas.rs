//! The command line names a tool with a too deeply nested schema.

use sa_gateway_kit::Setup;
use sa_gateway_kit::upstream::Says;
use sa_gateway_kit::upstream::until;

use crate::SWITCHBOARD;

/// Returns a server with a valid tool, and one with a schema of this many levels.
fn with_deep(levels: usize) -> Says {
    // Nested `properties`: each level is one that a validator descends into.
    let deep = format!("{}{{}}{}", "{\"properties\":".repeat(levels - 1), "}".repeat(levels - 1));
    Says::tools(&format!(
        r#",{{"name":"deep","inputSchema":{deep}}},{{"name":"last","inputSchema":{{}}}}"#
    ))
}

#[tokio::test]
async fn the_command_line_names_it() {
    let config = with_deep(1_000).serve(false).await;
    let gateway = Setup::new().config(&config).spawn(SWITCHBOARD).await;
    until(&gateway, "test", "ready").await;
    for args in [&["upstream", "list"][..], &["upstream", "show", "test"], &["doctor"]] {
        let shown = gateway.cli(args).run().await;
        assert!(
            shown.stdout.contains("left out") && shown.stdout.contains("deep"),
            "{args:?}: {}",
            shown.stdout
        );
    }
    gateway.stop().await;
}
