//! Web pages may send all headers of OpenAI's official client.

use sa_gateway_kit::{Reply, Setup};

#[tokio::test]
async fn pages_may_send_what_the_official_client_sends() {
    let gateway =
        Setup::new().config("[server]\nallowed_origins = [\"https://app.example\"]").start().await;
    let names = [
        "authorization",
        "content-type",
        "x-stainless-arch",
        "x-stainless-lang",
        "x-stainless-os",
        "x-stainless-package-version",
        "x-stainless-retry-count",
        "x-stainless-runtime",
        "x-stainless-runtime-version",
        "x-stainless-timeout",
        "x-stainless-helper-method",
        "x-stainless-of-next-year",
        "openai-organization",
        "openai-project",
    ];
    let asked = format!("{}, x-other, x-stainless-bad name", names.join(","));
    let preflight = gateway.operator().request(reqwest::Method::OPTIONS, "/v1/chat/completions");
    let preflight = preflight
        .header("origin", "https://app.example")
        .header("access-control-request-method", "POST");
    let reply = Reply::of(preflight.header("access-control-request-headers", &asked)).await;
    assert_eq!(reply.status, 204);
    let allowed = reply.headers["access-control-allow-headers"].to_str().unwrap();
    let allowed: Vec<&str> = allowed.split(", ").collect();
    for name in &names {
        assert!(allowed.contains(name), "{name}: {allowed:?}");
    }
    assert!(!allowed.contains(&"x-other"), "{allowed:?}");
}
