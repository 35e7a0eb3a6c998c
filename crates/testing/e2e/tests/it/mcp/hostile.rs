//! Many sessions and large messages cost the process no memory and cause no warning.

use sa_gateway_kit::mcp::raw::{open, post};
use sa_gateway_kit::{Setup, peak_resident, soon};

#[tokio::test]
async fn a_gateway_with_many_sessions_stops_without_a_word_of_trouble() {
    let mut gateway = Setup::new().spawn(crate::SWITCHBOARD).await;
    for _ in 0..200 {
        open(&gateway, &gateway.operator).await;
    }
    gateway.begin_stop();
    assert_eq!(gateway.exit_code().await, Some(0));
    let said = gateway.stderr();
    assert!(said.contains("stopped") && !said.contains("ERROR"), "{said}");
}

#[tokio::test]
async fn a_message_of_very_many_values_is_refused_before_it_is_read() {
    let gateway = Setup::new().spawn(crate::SWITCHBOARD).await;
    let before = peak_resident(gateway.pid());
    let many = "0,".repeat(1_900_000);
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"x","arguments":{{"n":[{many}0]}}}}}}"#
    );
    let response = soon(post(&gateway, &gateway.operator, &body).send()).await.unwrap();
    assert_eq!(response.status(), 413);
    assert!(soon(response.text()).await.unwrap().contains("250000 values"));
    let grown = peak_resident(gateway.pid()).saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
}
