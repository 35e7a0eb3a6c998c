//! The pieces of an answer, as the model's server sends them.

use sa_limits::offload;
use sa_text::json::{parse_value, parsed_bytes};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::answers::{Answers, weight};
use crate::chat::Event;
use crate::error::ChatError;
use crate::round::{Call, Round};
use crate::server::{Begun, MAX_ANSWER};
use crate::stream::{Forward, send};

/// Reads the pieces of a round and forwards them.
pub(super) async fn forward(
    mut begun: Begun,
    forward: &mut Forward<'_>,
    answers: &mut Answers,
) -> Result<(Round, Vec<Call>), ChatError> {
    let mut round = Round::default();
    let mut done = false;
    if begun.is_whole() {
        let piece = begun.into_piece(answers).await?;
        round.take(&piece);
        forward.piece(piece, &round).await?;
        let handed = forward.end_round(&round).await?;
        round.end();
        return Ok((round, handed));
    }
    let mut bytes = 0;
    while let Some(data) = begun.event(answers).await? {
        if data == "[DONE]" {
            done = true;
            break;
        }
        bytes += data.len();
        if bytes > MAX_ANSWER {
            return Err(begun.rubbish("its answer is too large"));
        }
        let piece = parse(&begun, &data, answers)?;
        drop(data);
        let kept = piece.get("choices").map_or(0, weight);
        round.take(&piece);
        forward.piece(piece, &round).await?;
        answers.keep(kept);
    }
    if !done && round.finish.is_none() {
        return Err(begun.cut());
    }
    let handed = forward.end_round(&round).await?;
    round.end();
    Ok((round, handed))
}

/// Forwards a stream unchanged, except for errors.
pub(super) async fn relay(
    mut begun: Begun,
    events: &mpsc::Sender<Event>,
    answers: &mut Answers,
) -> Result<(), ChatError> {
    if begun.is_whole() {
        let piece = Value::Object(begun.into_piece(answers).await?);
        return send(events, Event::Data(piece.to_string())).await;
    }
    let mut finished = false;
    while let Some(data) = begun.event(answers).await? {
        if data == "[DONE]" {
            return Ok(());
        }
        let piece = parse(&begun, &data, answers)?;
        finished |=
            piece.get("choices").is_some_and(|choices| choices[0]["finish_reason"].is_string());
        drop(piece);
        let bytes = data.len();
        send(events, Event::Data(data)).await?;
        // It waits for its reader, while the next one is received.
        answers.keep_only(bytes);
    }
    if finished { Ok(()) } else { Err(begun.cut()) }
}

fn parse(
    begun: &Begun,
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
            Err(begun.complaint(&Value::Object(piece)))
        }
        Ok(Value::Object(piece)) => Ok(piece),
        Ok(_) | Err(_) => Err(begun.rubbish("an event of its stream is not a JSON object")),
    }
}
