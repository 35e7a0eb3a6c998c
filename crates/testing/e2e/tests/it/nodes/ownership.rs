//! If another machine holds its id, a machine gets the command that helps.

use sa_gateway_kit::{Hello, Setup};

use crate::SWITCHBOARD;

const TOKENS: (&str, &str) = ("SA_NODE_TOKENS", "one:t1,two:t2");

#[tokio::test]
async fn a_machine_whose_id_is_held_is_told_what_to_type() {
    let gateway = Setup::new()
        .env("SA_NODE_TOKEN", "shared")
        .env(TOKENS.0, TOKENS.1)
        .spawn(SWITCHBOARD)
        .await;
    let _node = Hello::new("one").capability("a").token("t1").connect(&gateway).await;
    let dir = tempfile::tempdir().unwrap();
    let machine =
        gateway.cli(&["node", "--id", "one", "--workspace", dir.path().to_str().unwrap()]);
    let refused = machine.env("SA_NODE_TOKEN", "shared").run().await;
    for words in ["\"one\" belongs to another token", "--id NAME"] {
        assert!(refused.assert_code(9).stderr.contains(words), "{}", refused.stderr);
    }
    gateway.stop().await;
}
