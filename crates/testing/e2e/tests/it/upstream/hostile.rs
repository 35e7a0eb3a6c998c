//! An upstream server that answers with too much data, too slowly or wrongly costs the gateway
//! bounded memory, and its callers only the call. The call ends at once, with an error that names
//! the server.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Method, Response};
use futures_util::stream::{self, StreamExt as _};
use sa_gateway_kit::upstream::until;
use sa_gateway_kit::{Agent, Gateway, Reply, Setup, eventually, peak_resident, soon};
use serde_json::{Value, json};
use tokio::net::TcpListener;

const MIB: usize = 1 << 20;
const TOOLS: [&str; 12] = [
    "echo",
    "many_values",
    "many_values_in_an_event",
    "endless_answer",
    "endless_event",
    "endless_error",
    "endless_page",
    "slow_answer",
    "other_id",
    "no_id",
    "a_question",
    "refused",
];

/// The number of bodies that are still being sent.
type Open = Arc<AtomicUsize>;

/// A server with enough of MCP to be connected.
struct Hostile {
    url: String,
    open: Open,
}

impl Hostile {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let open = Open::default();
        let routes = Router::new().fallback(answer).with_state(Arc::clone(&open));
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { url, open }
    }

    async fn gateway(&self) -> (Gateway, Agent) {
        let config = format!("[upstream.web]\nurl = \"{}\"\n", self.url);
        let gateway = Setup::new().config(&config).spawn(crate::SWITCHBOARD).await;
        until(&gateway, "web", "ready").await;
        let agent = gateway.operator();
        (gateway, agent)
    }
}

/// Counts a body until its reader drops it.
struct Counted(Open);

impl Counted {
    fn new(open: &Open) -> Self {
        open.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(open))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn respond(status: u16, kind: &str, body: impl Into<Body>) -> Response<Body> {
    Response::builder().status(status).header("content-type", kind).body(body.into()).unwrap()
}

/// Returns `head` and then far more data than any limit, without an end.
fn endless(open: &Open, head: String) -> Body {
    let counted = Counted::new(open);
    let filling = stream::repeat(Bytes::from(vec![b'x'; 1 << 16])).take(512 * 16);
    let bytes =
        stream::once(async move { Bytes::from(head) }).chain(filling).chain(stream::pending());
    Body::from_stream(bytes.map(move |piece| (&counted, Ok::<_, std::io::Error>(piece)).1))
}

/// Returns a message that is short as text and large when parsed.
fn many(id: &Value) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[],\"structuredContent\":{{\"n\":[{}0]}}}}}}",
        "0,".repeat(5 * MIB)
    )
}

/// Returns a body that sends one byte at a time.
fn slow(open: &Open) -> Body {
    let counted = Counted::new(open);
    let bytes = stream::repeat(()).then(|()| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Bytes::from_static(b" ")
    });
    Body::from_stream(bytes.map(move |piece| (&counted, Ok::<_, std::io::Error>(piece)).1))
}

async fn answer(State(open): State<Open>, method: Method, body: Bytes) -> Response<Body> {
    if method != Method::POST {
        return respond(405, "text/plain", "");
    }
    let asked: Value = serde_json::from_slice(&body).unwrap();
    let (id, json) = (&asked["id"], "application/json");
    let say = |id: &Value, said: Value| {
        let mut message = json!({ "jsonrpc": "2.0", "id": id });
        message.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        message.to_string()
    };
    let result = |result: Value| say(id, json!({ "result": result }));
    let text = || result(json!({ "content": [{ "type": "text", "text": "hello" }] }));
    let refusal = json!({ "error": { "code": -32000, "message": "closed today" } });
    let head = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\""
    );
    match asked["method"].as_str().unwrap() {
        "server/discover" => respond(404, "text/plain", "what is that"),
        "initialize" => {
            let info = json!({ "name": "hostile", "version": "1" });
            let version = &asked["params"]["protocolVersion"];
            let tools = json!({ "protocolVersion": version, "capabilities": { "tools": {} }, "serverInfo": info });
            respond(200, json, result(tools))
        }
        "tools/list" => {
            let tools =
                TOOLS.map(|name| json!({ "name": name, "inputSchema": { "type": "object" } }));
            respond(200, json, result(json!({ "tools": tools })))
        }
        "tools/call" => match asked["params"]["name"].as_str().unwrap() {
            "endless_answer" => respond(200, json, endless(&open, head)),
            "endless_event" => {
                respond(200, "text/event-stream", endless(&open, format!("id: 1\ndata: {head}")))
            }
            "many_values" => respond(200, json, many(id)),
            "many_values_in_an_event" => {
                respond(200, "text/event-stream", format!("data: {}\n\n", many(id)))
            }
            "endless_error" => respond(400, json, endless(&open, head)),
            "endless_page" => respond(502, "text/html", endless(&open, "<html>".into())),
            "slow_answer" => respond(200, json, slow(&open)),
            "other_id" => {
                respond(200, json, say(&json!(987_654), json!({ "result": { "content": [] } })))
            }
            "no_id" => respond(200, json, say(&Value::Null, refusal)),
            "a_question" => respond(200, json, say(&json!(1), json!({ "method": "ping" }))),
            // The same answer as the official Python library's for requests that it refuses.
            "refused" => respond(400, json, say(&json!("server-error"), refusal)),
            _ => respond(200, json, text()),
        },
        _ => respond(202, "text/plain", ""),
    }
}

/// Calls a tool that must fail at once.
async fn at_once(agent: &Agent, tool: &str) -> Reply {
    soon(agent.call_with(tool, json!({ "args": {}, "timeout_ms": 600_000 }))).await
}

#[tokio::test]
async fn an_answer_without_end_ends_its_call_and_takes_bounded_memory() {
    let server = Hostile::start().await;
    let (gateway, agent) = server.gateway().await;
    let before = peak_resident(gateway.pid());
    for tool in [
        "web__endless_answer",
        "web__endless_event",
        "web__many_values",
        "web__many_values_in_an_event",
    ] {
        let reply = at_once(&agent, tool).await;
        let said = reply.assert_problem(502, "failed").detail();
        assert!(said.contains("\"web\"") && said.contains("16 MiB"), "{said}");
    }
    let said = at_once(&agent, "web__endless_error").await;
    assert!(said.assert_problem(502, "failed").detail().contains("400"), "{}", said.text);
    let said = at_once(&agent, "web__endless_page").await;
    assert!(said.assert_problem(502, "failed").detail().contains("502"), "{}", said.text);
    let grown = peak_resident(gateway.pid()).saturating_sub(before);
    // Some multiples of the limit for one answer. Several threads read and parse it, and their
    // memory is not returned at once.
    assert!(grown < 256 * MIB as u64, "{grown} bytes more");
    eventually("the end of all bodies", || async {
        (server.open.load(Ordering::SeqCst) == 0).then_some(())
    })
    .await;
    assert_eq!(agent.call("web__echo", json!({})).await.result()["content"][0]["text"], "hello");
}

#[tokio::test]
async fn an_answer_that_comes_byte_by_byte_is_read_no_longer_than_its_call_lasts() {
    let server = Hostile::start().await;
    let (_gateway, agent) = server.gateway().await;
    let reply =
        soon(agent.call_with("web__slow_answer", json!({ "args": {}, "timeout_ms": 300 }))).await;
    reply.assert_problem(504, "timeout");
    eventually("the end of its body", || async {
        (server.open.load(Ordering::SeqCst) == 0).then_some(())
    })
    .await;
    assert_eq!(agent.call("web__echo", json!({})).await.result()["content"][0]["text"], "hello");
}

#[tokio::test]
async fn an_answer_to_something_else_is_none_and_an_error_without_an_id_is_one() {
    let server = Hostile::start().await;
    let (_gateway, agent) = server.gateway().await;
    for tool in ["web__other_id", "web__a_question"] {
        let reply = at_once(&agent, tool).await;
        let said = reply.assert_problem(502, "failed").detail();
        assert!(said.contains("\"web\"") && said.contains("invalid MCP response"), "{said}");
    }
    for tool in ["web__no_id", "web__refused"] {
        let reply = at_once(&agent, tool).await;
        assert_eq!(reply.assert_problem(502, "failed").detail(), "closed today");
    }
}

/// A program with as much of MCP.
const PROGRAM: &str = r#"
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
    say() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
    tool() { printf '{"name":"%s","inputSchema":{"type":"object"}}' "$1"; }
    filling() { head -c 20000000 /dev/zero | tr '\0' x; }
    case "$line" in
    *server/discover*) say '"error":{"code":-32601,"message":"what is that"}' ;;
    *'"initialize"'*)
        say '"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"p","version":"1"}}' ;;
    *tools/list*)
        say "\"result\":{\"tools\":[$(tool wrong),$(tool long),$(tool many),$(tool long_first),$(tool endless),$(tool echo)]}" ;;
    *'"wrong"'*) say '"error":"boom"' ;;
    *'"long"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"content":"' "$id"; filling; printf '"}}\n' ;;
    *'"many"'*)
        printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[' "$id"; head -c 2000000 /dev/zero | tr '\0' 0 | sed 's/0/0,/g'
        printf '0]}}\n' ;;
    *'"long_first"'*) printf '{"result":{"content":"'; filling; printf '"},"id":%s}\n' "$id" ;;
    *'"endless"'*) printf '{"jsonrpc":"2.0","id":%s,"result":"' "$id"; exec tr '\0' x </dev/zero ;;
    *'"echo"'*) say '"result":{"content":[{"type":"text","text":"hello"}]}' ;;
    esac
done
"#;

async fn program(dir: &Path) -> (Gateway, Agent) {
    let script = dir.join("server.sh");
    std::fs::write(&script, PROGRAM).unwrap();
    let config = format!("[upstream.test]\ncommand = {}\n", json!(["sh", script]));
    let gateway = Setup::new().config(&config).spawn(crate::SWITCHBOARD).await;
    until(&gateway, "test", "ready").await;
    let agent = gateway.operator();
    (gateway, agent)
}

#[tokio::test]
async fn what_a_program_answers_wrongly_ends_its_call_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (gateway, agent) = program(dir.path()).await;
    let before = peak_resident(gateway.pid());
    for (tool, words) in [
        ("wrong", "invalid MCP response"),
        ("long", "16 MiB"),
        ("many", "a million"),
        ("long_first", "16 MiB"),
        ("endless", "16 MiB"),
    ] {
        let reply = at_once(&agent, &format!("test__{tool}")).await;
        let said = reply.assert_problem(502, "failed").detail();
        assert!(said.contains("\"test\"") && said.contains(words), "{tool}: {said}");
    }
    // A program that writes without end never answers again, so the gateway restarts it.
    eventually("an answer of the next one", || async {
        let reply = soon(agent.call("test__echo", json!({}))).await;
        (reply.status == 200).then(|| assert_eq!(reply.result()["content"][0]["text"], "hello"))
    })
    .await;
    let grown = peak_resident(gateway.pid()).saturating_sub(before);
    assert!(grown < 256 * MIB as u64, "{grown} bytes more");
}
