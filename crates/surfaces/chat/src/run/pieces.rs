//! The pieces of an answer, as the model's server sends them.

use sa_limits::offload;
use sa_text::json::{parse_value, parsed_bytes};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::answers::{Answers, weight};
use crate::chat::Event;
use crate::error::ChatError;
use crate::round::{Call, Round};
use crate::server::{MAX_ANSWER, StartedAnswer};
use crate::stream::{Forward, send};

/// Reads the pieces of a round and forwards them.
pub(super) async fn forward(
    mut started: StartedAnswer,
    forward: &mut Forward<'_>,
    answers: &mut Answers,
) -> Result<(Round, Vec<Call>), ChatError> {
    let mut round = Round::default();
    let mut done = false;
    if started.is_whole() {
        let piece = started.into_chunk(answers).await?;
        round.take(&piece);
        forward.piece(piece, &round).await?;
        let passed_on = forward.end_round(&round).await?;
        round.end();
        return Ok((round, passed_on));
    }
    let mut bytes = 0;
    while let Some(data) = started.event(answers).await? {
        if data == "[DONE]" {
            done = true;
            break;
        }
        bytes += data.len();
        if bytes > MAX_ANSWER {
            return Err(started.invalid("its answer is too large"));
        }
        let piece = parse(&started, &data, answers)?;
        drop(data);
        let kept = piece.get("choices").map_or(0, weight);
        round.take(&piece);
        forward.piece(piece, &round).await?;
        answers.keep(kept);
    }
    if !done && round.finish.is_none() {
        return Err(started.cut());
    }
    let passed_on = forward.end_round(&round).await?;
    round.end();
    Ok((round, passed_on))
}

/// Forwards a stream unchanged, except for errors.
pub(super) async fn relay(
    mut started: StartedAnswer,
    events: &mpsc::Sender<Event>,
    answers: &mut Answers,
) -> Result<(), ChatError> {
    if started.is_whole() {
        let piece = Value::Object(started.into_chunk(answers).await?);
        return send(events, Event::Data(piece.to_string())).await;
    }
    let mut finished = false;
    while let Some(data) = started.event(answers).await? {
        if data == "[DONE]" {
            return Ok(());
        }
        let piece = parse(&started, &data, answers)?;
        finished |=
            piece.get("choices").is_some_and(|choices| choices[0]["finish_reason"].is_string());
        drop(piece);
        let bytes = data.len();
        send(events, Event::Data(data)).await?;
        // It waits for its reader, while the next one is received.
        answers.keep_only(bytes);
    }
    if finished { Ok(()) } else { Err(started.cut()) }
}

fn parse(
    started: &StartedAnswer,
    data: &str,
    answers: &mut Answers,
) -> Result<Map<String, Value>, ChatError> {
    if data.len() >= offload::LARGE {
        answers.receive(parsed_bytes(data.as_bytes()))?;
    }
    match parse_value(data.as_bytes()) {
        Ok(Value::Object(piece))
            if piece.contains_key("error") && !piece.contains_key("choices") =>
        {
            Err(started.error_of(&Value::Object(piece)))
        }
        Ok(Value::Object(piece)) => Ok(piece),
        Ok(_) | Err(_) => Err(started.invalid("an event of its stream is not a JSON object")),
    }
}
