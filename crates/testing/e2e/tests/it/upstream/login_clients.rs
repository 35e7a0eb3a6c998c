//! An authority knows the gateway as a client: registered by hand, described by a document, or
//! registered dynamically. Each authenticates with a method that the authority accepts, and names
//! the resource of its tokens.

use std::path::Path;
use std::sync::Arc;

use sa_gateway_kit::upstream::{assert_greeted, authority, hello, open, until, upstream};
use sa_gateway_kit::{Asked, Authority, Gateway, Setup, find_in_files};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::process::tls::certificate;

const PUBLIC: &str = "https://gw.example.com";
const CALLBACK: &str = "https://gw.example.com/v1/upstream/hosted/callback";

fn setup(authority: &Authority, oauth: &str) -> Setup {
    let oauth = format!("oauth = {{ grant = \"authorization_code\", {oauth} }}");
    Setup::new().config(&format!(
        "[server]\npublic_url = \"{PUBLIC}\"\n[upstream.hosted]\nurl = \"{}\"\n{oauth}\n",
        authority.resource()
    ))
}

/// Logs in through a reverse proxy, calls a tool, and calls again after the token was revoked.
/// Returns the requests for the login, for tokens, and for their renewal.
async fn asked(at: &Gateway, authority: &Authority) -> [Asked; 3] {
    until(at, "hosted", "login_needed").await;
    let begun = at.operator().post("/v1/upstream/hosted/login", &json!({})).await;
    assert_eq!(begun.status, 200, "{}", begun.text);
    let back = authority.agree(begun.body["url"].as_str().unwrap()).await;
    assert!(back.starts_with(&format!("{CALLBACK}?")), "{back}");
    let (status, _, page) = open(&back.replace(PUBLIC, &at.url)).await;
    assert_eq!(status, 200, "{page}");
    until(at, "hosted", "ready").await;
    assert_greeted(&hello(at).await);
    authority.end_tokens();
    assert_greeted(&hello(at).await);
    let (login, tokens) = (authority.asked("/authorize").pop().unwrap(), authority.asked("/token"));
    let [.., granted, renewed] = &tokens[..] else { panic!("{tokens:?}") };
    let asked = [login, granted.clone(), renewed.clone()];
    assert_proper(&asked, authority);
    asked
}

/// Checks the properties that hold for every kind of client.
fn assert_proper([login, granted, renewed]: &[Asked; 3], authority: &Authority) {
    let word = |asked: &Asked, name: &str| asked.words.get(name).cloned().unwrap_or_default();
    assert_eq!(word(login, "response_type"), "code");
    assert_eq!(word(login, "code_challenge_method"), "S256");
    assert_eq!(word(login, "code_challenge").len(), 43, "{login:?}");
    let verifier = word(granted, "code_verifier");
    assert!(verifier.len() >= 43 && verifier != word(login, "code_challenge"), "{granted:?}");
    assert_eq!(word(granted, "grant_type"), "authorization_code");
    assert_eq!(word(renewed, "grant_type"), "refresh_token");
    for asked in [login, granted] {
        assert_eq!(word(asked, "redirect_uri"), CALLBACK);
    }
    for asked in [login, granted, renewed] {
        assert_eq!(word(asked, "resource"), authority.resource());
    }
    for name in ["client_secret", "code_verifier"] {
        assert!(!login.words.contains_key(name), "{login:?}");
    }
}

fn in_body(asked: &Asked) -> (Option<&str>, Option<&str>) {
    (
        asked.words.get("client_id").map(String::as_str),
        asked.words.get("client_secret").map(String::as_str),
    )
}

#[tokio::test]
async fn a_client_that_was_registered_by_hand_shows_its_secret_in_the_way_that_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secret");
    let oauth = format!("client_id = \"by hand\", client_secret = \"file:{}\"", file.display());
    for method in ["client_secret_basic", "client_secret_post"] {
        let authority = authority().await;
        authority.change(|behaviour| behaviour.methods = vec![method]);
        authority.introduce("by hand", "canary: first & secret", CALLBACK);
        std::fs::write(&file, "canary: first & secret\n").unwrap();
        let at = setup(&authority, &oauth).start().await;
        let [login, granted, renewed] = asked(&at, &authority).await;
        assert_eq!(login.words["client_id"], "by hand");
        for asked in [&granted, &renewed] {
            if method == "client_secret_basic" {
                assert!(asked.basic.is_some() && in_body(asked) == (None, None), "{asked:?}");
            } else {
                assert_eq!(asked.basic, None);
                assert_eq!(in_body(asked), (Some("by hand"), Some("canary: first & secret")));
            }
        }
        assert_eq!(authority.counts().registered, 0);

        // The secret stays in the operator's file: a replacement there takes effect.
        authority.introduce("by hand", "second", CALLBACK);
        authority.end_tokens();
        let refused = hello(&at).await;
        assert!(refused.text.contains("switchboard upstream login hosted"), "{}", refused.text);
        until(&at, "hosted", "login_needed").await;
        std::fs::write(&file, "second\n").unwrap();
        at.operator().post("/v1/upstream/hosted/restart", &json!({})).await;
        until(&at, "hosted", "ready").await;
        assert_greeted(&hello(&at).await);
        let data = at.data_dir();
        at.stop().await;
        assert_eq!(find_in_files(&data, "canary: first"), Vec::<std::path::PathBuf>::new());
    }
}

#[tokio::test]
async fn a_client_without_a_secret_says_who_it_is_and_no_more() {
    let authority = authority().await;
    authority.introduce("public", "", CALLBACK);
    let at =
        setup(&authority, "client_id = \"public\", scopes = [\"tools\", \"more\"]").start().await;
    let [login, granted, renewed] = asked(&at, &authority).await;
    assert_eq!((&*login.words["client_id"], &*login.words["scope"]), ("public", "tools more"));
    for asked in [&granted, &renewed] {
        assert_eq!((&asked.basic, in_body(asked)), (&None, (Some("public"), None)));
    }
    assert_eq!(authority.counts().registered, 0);
}

/// Serves one document over TLS, like an operator's website. Returns its address and an HTTP client
/// that trusts it.
async fn document(dir: &Path) -> (String, reqwest::Client) {
    let (cert, key) = certificate(dir).await;
    let trusted = reqwest::Certificate::from_pem(&std::fs::read(&cert).unwrap()).unwrap();
    let chain = vec![CertificateDer::from_pem_file(&cert).unwrap()];
    let config = ServerConfig::builder().with_no_client_auth();
    let config =
        config.with_single_cert(chain, PrivateKeyDer::from_pem_file(&key).unwrap()).unwrap();
    let (acceptor, listener) =
        (TlsAcceptor::from(Arc::new(config)), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let address =
        format!("https://localhost:{}/client.json", listener.local_addr().unwrap().port());
    let document = json!({
        "client_id": address, "client_name": "a gateway", "redirect_uris": [CALLBACK],
        "grant_types": ["authorization_code", "refresh_token"], "token_endpoint_auth_method": "none",
    });
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            assert!(request.starts_with(b"GET /client.json "));
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
            stream.write_all(format!("{head}{document}").as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    (address, reqwest::Client::builder().tls_certs_only([trusted]).build().unwrap())
}

#[tokio::test]
async fn a_document_says_what_the_gateway_is_where_one_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let (address, http) = document(dir.path()).await;
    let authority = authority().await;
    let oauth = format!("client_metadata_url = \"{address}\"");
    // This authority accepts no documents, so the gateway registers.
    let at = setup(&authority, &oauth).start().await;
    let [login, granted, _] = asked(&at, &authority).await;
    assert_eq!((&*login.words["client_id"], authority.counts().registered), ("client-1", 1));
    assert!(granted.basic.is_some(), "{granted:?}");

    authority.take_documents(http);
    let at = setup(&authority, &oauth).start().await;
    let [login, granted, renewed] = asked(&at, &authority).await;
    assert_eq!(login.words["client_id"], address);
    for asked in [&granted, &renewed] {
        assert_eq!((&asked.basic, in_body(asked)), (&None, (Some(&*address), None)));
    }
    assert_eq!(authority.counts().registered, 1, "it registered all the same");

    // The client id is the same for every authority, but the login is not.
    let other = sa_gateway_kit::upstream::authority().await;
    authority.change(|behaviour| behaviour.authority = Some(other.url.clone()));
    let again = setup(&authority, &oauth).on(&at);
    at.stop().await;
    let at = again.start().await;
    at.operator().post("/v1/upstream/hosted/restart", &json!({})).await;
    let state = until(&at, "hosted", "login_needed").await;
    assert!(state["last_error"].as_str().unwrap().contains("another authority"), "{state}");
    assert_eq!(upstream(&at, "hosted").await["logged_in"], false);
    assert_eq!(other.asked("/token").len(), 0, "it was sent what another one has granted");
}
