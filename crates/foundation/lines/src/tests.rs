use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::*;

/// Returns the messages that `Lines` reads from `written`, and the refusals that it sends.
async fn heard<Role: ServiceRole>(
    who: &str,
    refuses_noise: bool,
    written: Vec<u8>,
) -> (Vec<Value>, Vec<Value>) {
    let (mut writing, reading) = tokio::io::duplex(1 << 16);
    let (told, telling) = tokio::io::duplex(1 << 16);
    let writing = tokio::spawn(async move { writing.write_all(&written).await });
    let told = tokio::spawn(async move {
        let mut text = String::new();
        BufReader::new(told).read_to_string(&mut text).await.unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    });
    let mut lines = Lines::<Role, _, _>::new(who.into(), refuses_noise, reading, telling);
    let mut heard = Vec::new();
    while let Some(message) = lines.receive().await {
        heard.push(serde_json::to_value(message).unwrap());
    }
    drop(lines);
    let _ = writing.await;
    (heard, told.await.unwrap())
}

fn ids(messages: &[Value]) -> Vec<&Value> {
    messages.iter().map(|message| &message["id"]).collect()
}

#[tokio::test]
async fn an_answer_that_cannot_be_taken_is_an_error_for_whoever_has_asked() {
    let good = json!({ "jsonrpc": "2.0", "id": 9, "result": { "content": [] } });
    let long = "x".repeat(MAX_MESSAGE);
    let text = format!(
        r#"hello

{{"jsonrpc":"2.0","id":1,"error":"boom"}}
{{"id":2,"result":{{}}}}
{{"jsonrpc":"2.0","id":3,"result":{{"text":"{long}"}}}}
{{"result":{{"id":7,"text":"{long}"}},"id":4}}
{{"result":{{"id":7,"many":[{many}0]}},"id":6}}
{{"jsonrpc":"2.0","id":7,"result":{{"text":"\ud800"}}}}
{{"jsonrpc":"2.0","id":1,"id":8,"result":{{}}}}
{{"jsonrpc":"2.0","id":5,"method":7}}
{good}"#,
        many = "0,".repeat(MAX_VALUES),
    );
    let (heard, told) = heard::<RoleClient>("the upstream \"x\"", false, text.into_bytes()).await;
    assert_eq!(ids(&heard), [1, 2, 3, 4, 6, 7, 8, 9]);
    for (message, words) in heard.iter().zip([
        "an invalid MCP response",
        "an invalid MCP response",
        "16 MiB",
        "16 MiB",
        "a million values",
        "an invalid MCP response",
        "an invalid MCP response",
    ]) {
        let said = message["error"]["message"].as_str().unwrap();
        assert!(said.contains(words) && said.contains("the upstream \"x\""), "{said}");
    }
    assert_eq!(heard[7], good, "though its line does not end");
    assert_eq!(ids(&told), [5], "a question that is none is refused, and nothing else");
}

#[tokio::test]
async fn a_request_that_cannot_be_taken_is_refused_to_whoever_has_sent_it() {
    let good = json!({ "jsonrpc": "2.0", "id": 9, "method": "ping" });
    let long = "x".repeat(MAX_MESSAGE);
    let mut written = b"hello\n\xff\xfe\n[]\n7\n{\"jsonrpc\":\"2.0\"}\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":7}\n".to_vec();
    written.extend(
        format!(
            r#"[{good},{good}]
{{"id":5,"method":"ping"}}
{{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{{"text":"{long}"}}}}
{{"params":{{"id":1,"text":"{long}"}},"method":"tools/call","id":7}}
{{"jsonrpc":"2.0","id":1,"error":"boom"}}
{good}
{{"jsonrpc":"2.0","id":10,"meth"#
        )
        .bytes(),
    );
    let (heard, told) = heard::<RoleServer>("the client", true, written).await;
    assert_eq!(ids(&heard), [1, 9], "an answer that is none ends its question");
    let codes: Vec<&Value> = told.iter().map(|told| &told["error"]["code"]).collect();
    let (parse, invalid) = (-32700, -32600);
    assert_eq!(
        codes,
        [parse, parse, invalid, invalid, invalid, invalid, invalid, invalid, invalid, parse]
    );
    assert_eq!(ids(&told)[6..9], [5, 6, 7]);
}

#[tokio::test]
async fn a_line_without_end_ends_the_connection() {
    let mut line = br#"{"jsonrpc":"2.0","id":5,"result":""#.to_vec();
    line.resize(5 * MAX_MESSAGE, b'x');
    let (heard, _) = heard::<RoleClient>("the server", false, line).await;
    assert_eq!(ids(&heard), [5], "told once");
}

#[tokio::test]
async fn whoever_reads_no_refusals_is_not_read_either() {
    let (mut writing, reading) = tokio::io::duplex(1 << 10);
    let (told, telling) = tokio::io::duplex(1 << 10);
    let receiving = tokio::spawn(async move { Lines::of_client(reading, telling).receive().await });
    // Far more refusals than fit into the buffers, so one side has to wait.
    let written = tokio::time::timeout(std::time::Duration::from_millis(200), async {
        for _ in 0..100_000 {
            writing.write_all(b"noise\n").await.unwrap();
        }
    });
    assert!(written.await.is_err(), "all of it was taken");
    let mut told = BufReader::new(told).lines();
    assert!(told.next_line().await.unwrap().unwrap().contains("-32700"));
    receiving.abort();
}

#[tokio::test]
async fn a_refusal_that_waits_holds_up_no_answer() {
    let (mut writing, reading) = tokio::io::duplex(1 << 10);
    let (told, telling) = tokio::io::duplex(8);
    let mut lines = Lines::of_client(reading, telling);
    writing.write_all(b"noise\n").await.unwrap();
    // The receive is cancelled while the refusal waits for buffer space, as in a `select!`.
    let left = tokio::time::timeout(std::time::Duration::from_millis(50), lines.receive()).await;
    assert!(left.is_err());
    let answer =
        lines.send(JsonRpcMessage::error(ErrorData::internal_error("so it is", None), None));
    let mut told = BufReader::new(told).lines();
    let (sent, first) = tokio::join!(answer, async {
        (told.next_line().await.unwrap(), told.next_line().await.unwrap())
    });
    sent.unwrap();
    assert!(first.0.unwrap().contains("-32700") && first.1.unwrap().contains("so it is"));
}

#[test]
fn values_are_counted_and_not_what_is_in_texts() {
    let is_too_much = |message: &[u8]| bearable(message).is_none();
    assert!(is_too_much(format!("[{}0]", "0,".repeat(MAX_VALUES)).as_bytes()));
    assert!(is_too_much(format!("[{}0]", "{},".repeat(MAX_VALUES / 2)).as_bytes()));
    assert!(!is_too_much(format!("[{}0]", "0,".repeat(MAX_VALUES - 1)).as_bytes()));
    assert!(!is_too_much(format!("[\"{}\"]", ",\\\",".repeat(MAX_VALUES)).as_bytes()));
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(
        is_too_much(nested(MAX_LEVELS + 1).as_bytes()) && is_too_much(nested(100_000).as_bytes())
    );
    assert!(!is_too_much(nested(MAX_LEVELS).as_bytes()));
}

type Said = Line<RxJsonRpcMessage<RoleServer>>;

/// Returns the kind of a line and the id of its request.
fn named(line: Said) -> (&'static str, Option<RequestId>) {
    match line {
        Line::Message(message) => ("message", message.into_request().map(|(_, id)| id)),
        Line::Answer(id) => ("answer", Some(id)),
        Line::LongAnswer(id) => ("long answer", Some(id)),
        Line::Request(id) => ("request", id),
        Line::LongRequest(id) => ("long request", id),
        Line::News => ("news", None),
        Line::Noise => ("noise", None),
        Line::Endless => ("endless", None),
    }
}

fn whole_line<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Option<(&'static str, Option<RequestId>)> {
    let mut heard = Heard::default();
    for piece in pieces {
        assert!(heard.hear::<RxJsonRpcMessage<RoleServer>>(piece, false).is_none());
    }
    heard.end();
    heard.whole().and_then(|_| heard.read()).map(named)
}

fn usual() -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": "t", "arguments": {} } })
}

/// Generates the parts of a message in any order, with an id of either kind.
fn parts() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let id = prop_oneof![
        (0_i64..1_000_000).prop_map(Value::from),
        "[a-z\"\\\\\n é]{0,20}".prop_map(Value::from),
        sa_hostile::long().prop_map(Value::from)
    ];
    let other = sa_hostile::json(&["id", "method", "result", "x"]);
    let kind = prop::sample::select(&["method", "result", "error", "x"][..]);
    (prop::option::of(id), kind, other.clone(), other, "result|id|method|\\PC{0,200}")
        .prop_map(|(id, kind, value, params, text)| {
            let value = if kind == "method" { Value::from("tools/call") } else { value };
            let id = id.map(|id| ("id", id));
            id.into_iter()
                .chain([
                    ("jsonrpc", "2.0".into()),
                    (kind, value),
                    ("params", params),
                    ("note", text.into()),
                ])
                .collect::<Vec<_>>()
        })
        .prop_shuffle()
}

proptest! {
    #[test]
    fn no_cut_changes_what_a_line_is((text, pieces) in sa_hostile::pieces(sa_hostile::nearly(usual()))) {
        prop_assert_eq!(whole_line([text.as_bytes()]), whole_line(pieces.iter().map(Vec::as_slice)));
    }

    /// Every request gets an answer, even if the request is invalid.
    #[test]
    fn no_request_is_lost_without_a_word(text in sa_hostile::nearly(usual())) {
        let line = text.replace(['\n', '\r'], " ");
        let id = serde_json::from_str::<Value>(&line).ok().filter(|line| line["method"] != Value::Null).map(|line| line["id"].clone());
        let id = id.and_then(|id| serde_json::from_value::<RequestId>(id).ok());
        match (whole_line([line.as_bytes()]), id) {
            (Some((kind, told)), Some(id)) => prop_assert!(kind == "request" && told.is_none() || told == Some(id), "{kind}"),
            (None, Some(id)) => prop_assert!(false, "{id} is lost"),
            (_, None) => {}
        }
    }

    #[test]
    fn no_bytes_break_the_reader((stream, pieces) in sa_hostile::pieces(sa_hostile::noise())) {
        prop_assert_eq!(whole_line([&stream[..]]), whole_line(pieces.iter().map(Vec::as_slice)));
    }

    /// A line that is too long is classified by its own fields alone, in any order and with any
    /// cuts.
    #[test]
    fn what_a_long_line_is_about_is_known_wherever_it_was_cut((text, pieces) in sa_hostile::pieces(parts().prop_map(|parts| {
        let fields: Vec<String> = parts.iter().map(|(name, value)| format!("\"{name}\" : {value}")).collect();
        format!("{{ {} }}", fields.join(" ,\t"))
    }))) {
        let mut skipped = crate::heard::Skipped::default();
        let last = pieces.len() - 1;
        let mut told = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            skipped.pass(piece);
            told.extend(skipped.line::<RxJsonRpcMessage<RoleServer>>(at == last).map(named));
        }
        let message: Value = serde_json::from_str(&text).unwrap();
        let id = serde_json::from_value::<RequestId>(message["id"].clone()).ok();
        // An id of this length is not kept.
        let id = id.filter(|_| message["id"].to_string().len() < 128);
        let expected = match (id, message.get("method")) {
            (Some(id), Some(_)) => ("long request", Some(id)),
            (Some(id), None) => ("long answer", Some(id)),
            (None, _) => ("long request", None),
        };
        prop_assert_eq!(told, [expected], "{}", text);
    }

    #[test]
    fn values_are_counted_as_a_reader_finds_them(value in sa_hostile::json(&["a", ",", "[", "\"", "\\"])) {
        fn count(value: &Value) -> usize {
            match value {
                Value::Array(items) => items.len().max(1) + items.iter().map(count).sum::<usize>(),
                Value::Object(fields) => fields.len().max(1) + fields.values().map(count).sum::<usize>(),
                _ => 0,
            }
        }
        let (text, values) = (value.to_string(), count(&value));
        prop_assert!(!has_more_values(text.as_bytes(), values));
        prop_assert!(values == 0 || has_more_values(text.as_bytes(), values - 1));
    }
}
