//! Tools and a prompt that ask the client for input first.

use rmcp::model::*;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Map, Value, json};

use crate::fixtures::LONG;
use crate::{made, text};

/// Returns whether the client declared this capability.
pub(crate) fn can(context: &RequestContext<RoleServer>, what: &str) -> bool {
    let can = serde_json::to_value(context.client_capabilities()).unwrap_or_default();
    can.get(what).is_some()
}

fn form(message: &str, fields: &Value) -> Value {
    json!({ "method": "elicitation/create", "params": { "mode": "form", "message": message,
        "requestedSchema": { "type": "object", "properties": fields } } })
}

fn sample(prompt: &str) -> Value {
    json!({ "method": "sampling/createMessage", "params": { "maxTokens": 100,
        "messages": [{ "role": "user", "content": { "type": "text", "text": prompt } }] } })
}

fn name() -> Value {
    form("What is your name?", &json!({ "name": { "type": "string" } }))
}

/// Calls a tool that asks for input.
pub(crate) async fn call(
    tool: &str,
    args: &Value,
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let word = |field: &str| args[field].as_str().unwrap_or_default().to_owned();
    let meanwhile = match tool {
        "test_sampling" => Some(sample(&word("prompt"))),
        "test_elicitation" => {
            let fields = json!({ "username": { "type": "string" }, "email": { "type": "string" } });
            Some(form(&word("message"), &fields))
        }
        "test_elicitation_sep1034_defaults" => Some(form("Look these over", &defaults())),
        "test_elicitation_sep1330_enums" => Some(form("Choose", &choices())),
        _ => None,
    };
    if let Some(question) = meanwhile {
        let question: ServerRequest = made(question)?;
        let answer = context.peer.send_request(question).await;
        let answer = answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        return text(&serde_json::to_value(answer).unwrap_or_default().to_string());
    }
    let rounds = match tool {
        "test_missing_capability" | "test_input_required_result_sampling" => {
            vec![json!({ "answer": sample("Capital?") })]
        }
        "test_input_required_result_elicitation"
        | "test_streaming_elicitation"
        | "test_tool_with_task" => {
            vec![json!({ "user_name": name() })]
        }
        "test_input_required_result_list_roots" => {
            vec![json!({ "roots": { "method": "roots/list" } })]
        }
        "test_input_required_result_request_state"
        | "test_input_required_result_tampered_state" => {
            vec![
                json!({ "confirm": form("Please confirm", &json!({ "ok": { "type": "boolean" } })) }),
            ]
        }
        "test_input_required_result_multiple_inputs" => vec![json!({
            "user_name": name(), "greeting": sample("Generate a greeting"), "client_roots": { "method": "roots/list" } })],
        "test_input_required_result_multi_round" => vec![
            json!({ "step1": name() }),
            json!({ "step2": form("What is your favorite color?", &json!({ "color": { "type": "string" } })) }),
        ],
        "test_input_required_result_capabilities" => {
            let mut asked = Map::new();
            if can(context, "elicitation") {
                asked.insert("user_name".into(), name());
            }
            if can(context, "sampling") {
                asked.insert("greeting".into(), sample("Hi"));
            }
            vec![Value::Object(asked)]
        }
        "confirm_delete" => {
            vec![json!({ "confirm": form("Sure?", &json!({ "confirm": { "type": "boolean" } })) })]
        }
        "multi_input" => vec![json!({ "first": name(), "second": name() })],
        _ => return Err(ErrorData::invalid_params(format!("there is no tool {tool}"), None)),
    };
    if ["confirm_delete", "multi_input"].contains(&tool) && request.request_state.is_none() {
        tokio::time::sleep(LONG).await;
    }
    let round = round(tool, request.request_state.as_deref(), rounds.len())?;
    let answers = request.input_responses.clone().unwrap_or_default();
    let asked = &rounds[round];
    let answered = asked.as_object().into_iter().flatten().all(|(key, question)| {
        answers.get(key).is_some_and(|answer| {
            question["method"] != "elicitation/create" || answer["action"].is_string()
        })
    });
    let next = match (answered, rounds.get(round + 1)) {
        (false, _) => Some((round, asked)),
        (true, Some(next)) => Some((round + 1, next)),
        (true, None) => None,
    };
    if let Some((round, asked)) = next {
        let state = Some(format!("{tool}/{round}"));
        return Ok(CallToolResponse::InputRequired(InputRequiredResult::new(
            Some(made(asked.clone())?),
            state,
        )));
    }
    if tool == "test_tool_with_task" {
        tokio::time::sleep(LONG).await;
    }
    text(&format!("state-ok {}", serde_json::to_value(answers).unwrap_or_default()))
}

/// Returns the round that a request continues. State that this server did not create is an error.
fn round(tool: &str, state: Option<&str>, rounds: usize) -> Result<usize, ErrorData> {
    let Some(state) = state else { return Ok(0) };
    let round = state
        .strip_prefix(tool)
        .and_then(|rest| rest.strip_prefix('/'))
        .and_then(|round| round.parse().ok());
    round
        .filter(|round| *round < rounds)
        .ok_or_else(|| ErrorData::invalid_params("the requestState is not mine", None))
}

/// Returns a prompt that asks for input.
pub(crate) fn prompt(request: &GetPromptRequestParams) -> Result<GetPromptResponse, ErrorData> {
    let answers = request.input_responses.clone().unwrap_or_default();
    let Some(answer) = answers.get("user_context") else {
        let question = json!({ "user_context": form("Which context?", &json!({ "context": { "type": "string" } })) });
        return Ok(GetPromptResponse::InputRequired(InputRequiredResult::new(
            Some(made(question)?),
            None,
        )));
    };
    let message =
        json!({ "role": "user", "content": { "type": "text", "text": answer.to_string() } });
    Ok(GetPromptResponse::Complete(made(json!({ "messages": [message] }))?))
}

fn defaults() -> Value {
    json!({
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
        "verified": { "type": "boolean", "default": true },
    })
}

fn choices() -> Value {
    let titled = json!([{ "const": "value1", "title": "First" }, { "const": "value2", "title": "Second" },
        { "const": "value3", "title": "Third" }]);
    let plain = json!(["option1", "option2", "option3"]);
    json!({
        "untitledSingle": { "type": "string", "enum": plain },
        "titledSingle": { "type": "string", "oneOf": titled },
        "legacyEnum": { "type": "string", "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"] },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": plain } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled } },
    })
}
