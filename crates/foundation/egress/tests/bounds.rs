//! Rule: responses are bounded in size and time, redirects in number, and a request with a secret
//! stays at its origin.

mod support;

use std::time::Duration;

use sa_egress::{EgressErrorKind, Method, Request, header};
use sa_limits::budget::{Holder, Limit, SharedBudget};
use support::{Names, Server, egress, get, rule_for_tests};

fn url(server: &Server) -> url::Url {
    format!("http://127.0.0.2:{}/", server.port).parse().unwrap()
}

async fn kind(request: Request) -> EgressErrorKind {
    egress(&[], Names::new(&[]), rule_for_tests)
        .send(request)
        .await
        .expect_err("it must not succeed")
        .kind
}

#[tokio::test]
async fn a_giant_answer_is_refused_by_its_word_and_by_its_bytes() {
    let told = Server::start("127.0.0.2", |_| {
        "HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n".into()
    })
    .await;
    assert_eq!(kind(get(url(&told))).await, EgressErrorKind::TooLarge);
    let endless = Server::start("127.0.0.2", |_| support::endless()).await;
    assert_eq!(kind(get(url(&endless))).await, EgressErrorKind::TooLarge);
}

#[tokio::test]
async fn a_response_without_a_budget_is_refused_by_its_length_and_by_its_bytes() {
    let limit = Limit { name: "b", what: "bytes", key: "k", remedy: "wait", total: 1 << 20 };
    let budget = SharedBudget::new(limit);
    let holder = Holder::named("a");
    let of = |server: &Server, bytes| Request {
        answers: Some(budget.share(&holder)),
        max_bytes: bytes,
        ..get(url(server))
    };
    let whole = Server::start("127.0.0.2", |_| support::ok(&"x".repeat(500_000))).await;
    let egress = egress(&[], Names::new(&[]), rule_for_tests);
    let response = egress.send(of(&whole, 500_000)).await.unwrap();
    assert!(budget.used() > 480_000, "the response holds its part");
    let second = budget.acquire(&holder, 280_000).unwrap();
    let told =
        Server::start("127.0.0.2", |_| "HTTP/1.1 200 OK\r\ncontent-length: 500000\r\n\r\n".into())
            .await;
    let endless = Server::start("127.0.0.2", |_| support::endless()).await;
    for server in [&told, &endless] {
        let error = egress.send(of(server, 500_000)).await.unwrap_err();
        assert_eq!(error.kind, EgressErrorKind::Refused, "{error}");
        assert!(error.refused.is_some());
    }
    drop((response, second));
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn a_slow_answer_is_given_up() {
    let silent = Server::start("127.0.0.2", |_| String::new()).await;
    let mut request = get(url(&silent));
    request.time = Duration::from_millis(100);
    assert_eq!(kind(request).await, EgressErrorKind::Timeout);
    let half =
        Server::start("127.0.0.2", |_| "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf".into())
            .await;
    let mut request = get(url(&half));
    request.time = Duration::from_millis(100);
    assert_eq!(kind(request).await, EgressErrorKind::Timeout);
}

#[tokio::test]
async fn rubbish_and_silence_are_told_apart() {
    let rubbish = Server::start("127.0.0.2", |_| "this is no HTTP\r\n\r\n".into()).await;
    assert_eq!(kind(get(url(&rubbish))).await, EgressErrorKind::Broken);
    let gone = Server::start("127.0.0.2", |_| String::new()).await;
    let at = url(&gone);
    gone.end().await;
    assert_eq!(kind(get(at)).await, EgressErrorKind::Unreachable);
    assert_eq!(
        kind(get("http://nowhere.test/".parse().unwrap())).await,
        EgressErrorKind::Unresolved
    );
}

#[tokio::test]
async fn redirects_end() {
    let round = Server::start("127.0.0.2", |_| support::redirect(302, "/again")).await;
    assert_eq!(kind(get(url(&round))).await, EgressErrorKind::TooManyRedirects);
    assert_eq!(round.hits_of_requests(), 6, "the first and five redirects");
}

#[tokio::test]
async fn a_secret_does_not_follow_to_another_origin() {
    let other = Server::start("127.0.0.2", |_| support::ok("other")).await;
    let to = format!("http://127.0.0.2:{}/", other.port);
    let first = Server::start("127.0.0.2", move |_| support::redirect(307, &to)).await;
    let mut request = get(url(&first));
    request.headers.insert(header::AUTHORIZATION, "Bearer canary".parse().unwrap());
    request.secret = true;
    assert_eq!(kind(request.clone()).await, EgressErrorKind::CrossOrigin);
    assert_eq!(other.hits(), 0);
    // Without the flag the request follows the redirect, but known credential headers are removed.
    request.secret = false;
    egress(&[], Names::new(&[]), rule_for_tests).send(request).await.unwrap();
    assert!(!other.last_request().to_lowercase().contains("canary"), "{}", other.last_request());
}

#[tokio::test]
async fn a_redirect_at_the_same_origin_keeps_what_it_should() {
    let server = Server::start("127.0.0.2", |request: &str| match request.split(' ').nth(1) {
        Some("/kept") => support::redirect(308, "/end"),
        Some("/changed") => support::redirect(302, "/end"),
        _ => support::ok("end"),
    })
    .await;
    for (path, method) in [("kept", "POST"), ("changed", "GET")] {
        let mut request = get(url(&server).join(path).unwrap());
        request.method = Method::POST;
        request.body = "{}".into();
        request.secret = true;
        request.headers.insert("x-key", "k".parse().unwrap());
        let response = egress(&[], Names::new(&[]), rule_for_tests).send(request).await.unwrap();
        assert_eq!(response.url.path(), "/end");
        let seen = server.last_request();
        assert!(seen.starts_with(method) && seen.contains("x-key: k"), "{seen}");
    }
}
