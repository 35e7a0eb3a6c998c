//! After each start, `operator.token` contains a valid token. Other content in the file grants no
//! access, except in a gateway without any tokens. The log reports this and lists the tokens that
//! are still valid.

use std::sync::Arc;

use sa_gateway_kit::{Gateway, Setup};

use crate::SWITCHBOARD;

/// Stops a gateway, writes this to its operator token file (or deletes it), and starts it again.
async fn restarted(gateway: Gateway, written: Option<&[u8]>) -> Gateway {
    let (dir, file) = (Arc::clone(&gateway.dir), gateway.data_dir().join("operator.token"));
    gateway.stop().await;
    match written {
        Some(bytes) => std::fs::write(file, bytes).unwrap(),
        None => std::fs::remove_file(file).unwrap(),
    }
    Setup::new().in_dir(&dir).spawn(SWITCHBOARD).await
}

async fn status_with(gateway: &Gateway, token: &str) -> u16 {
    gateway.agent(token).get("/v1/status").await.status
}

#[tokio::test]
async fn what_is_written_into_the_file_opens_nothing_and_is_told() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let first = gateway.operator.clone();
    let planted = format!("sb_{}", "A".repeat(43));
    let mut damaged = first.clone().into_bytes();
    *damaged.last_mut().unwrap() ^= 1;
    let (_, agents) = gateway.token(serde_json::json!({ "name": "agent", "role": "agent" })).await;
    let cases: [(Option<&[u8]>, &str); 6] = [
        (Some(planted.as_bytes()), "changed or damaged"),
        (Some(&damaged), "changed or damaged"),
        (Some(b"caf\xe9"), "could not be read"),
        (Some(b""), "was empty"),
        (Some(agents.as_bytes()), "not an operator token"),
        (None, "file was missing"),
    ];
    let mut seen = vec![first.clone()];
    for (written, why) in cases {
        gateway = restarted(gateway, written).await;
        assert!(!seen.contains(&gateway.operator), "a new one");
        assert_eq!(status_with(&gateway, &gateway.operator).await, 200);
        if let Some(Ok(token)) = written.map(std::str::from_utf8).filter(|token| *token != Ok("")) {
            assert_ne!(status_with(&gateway, token).await, 200, "{why}");
        }
        let log = gateway.stderr();
        let told = log
            .lines()
            .find(|line| line.contains("wrote a new operator token"))
            .unwrap_or_default();
        assert!(told.contains("operator.token") && told.contains(why), "{why}: {log}");
        assert!(told.contains("switchboard token revoke ID"), "{log}");
        for token in seen.iter().chain([&planted, &gateway.operator]) {
            assert!(!log.contains(token.as_str()), "no token is in the log");
        }
        seen.push(gateway.operator.clone());
    }
    // The log names the tokens to revoke.
    let log = gateway.stderr();
    let told = log.lines().find(|line| line.contains("wrote a new operator token")).unwrap();
    assert_eq!(told.matches("tok_").count(), seen.len() - 1, "{told}");
    assert_eq!(status_with(&gateway, &first).await, 200);
    let id = &told[told.find("tok_").unwrap()..][.."tok_".len() + 32];
    gateway.cli(&["token", "revoke", id]).run().await.assert_code(0);
    let mut valid = 0;
    for token in &seen {
        valid += usize::from(status_with(&gateway, token).await == 200);
    }
    assert_eq!(valid, seen.len() - 1);
    gateway.stop().await;
}

#[tokio::test]
async fn a_token_that_works_is_left_alone_and_a_new_store_takes_it_in() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let token = gateway.operator.clone();
    let gateway = restarted(gateway, Some(format!("{token}\n").as_bytes())).await;
    assert_eq!(gateway.operator, token);
    assert!(!gateway.stderr().contains("operator token"), "{}", gateway.stderr());
    let (dir, data) = (Arc::clone(&gateway.dir), gateway.data_dir());
    gateway.stop().await;
    for name in ["switchboard.db", "switchboard.db.witness"] {
        std::fs::remove_file(data.join(name)).unwrap();
    }
    let gateway = Setup::new().in_dir(&dir).spawn(SWITCHBOARD).await;
    assert_eq!(status_with(&gateway, &token).await, 200, "scripts that have read it go on");
    assert!(
        gateway.stderr().contains("the operator token was read from its file"),
        "{}",
        gateway.stderr()
    );
    gateway.stop().await;
}
