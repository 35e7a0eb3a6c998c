//! The pieces of an answer, as the model's server sends them.

use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::chat::Event;
use crate::error::ChatError;
use crate::round::{Call, Round};
use crate::server::{Begun, MAX_ANSWER};
use crate::stream::{Forward, send};

/// Reads the pieces of a round and forwards them.
pub(super) async fn forward(
    mut begun: Begun,
    forward: &mut Forward<'_>,
) -> Result<(Round, Vec<Call>), ChatError> {
    let mut round = Round::default();
    let mut done = false;
    if begun.is_whole() {
        let piece = begun.into_piece().await?;
        round.take(&piece);
        forward.piece(piece, &round).await?;
        let handed = forward.end_round(&round).await?;
        round.end();
        return Ok((round, handed));
    }
    let mut bytes = 0;
    while let Some(data) = begun.event().await? {
        if data == "[DONE]" {
            done = true;
            break;
        }
        bytes += data.len();
        if bytes > MAX_ANSWER {
            return Err(begun.rubbish("its answer is too large"));
        }
        let piece = parse(&begun, &data)?;
        round.take(&piece);
        forward.piece(piece, &round).await?;
    }
    if !done && round.finish.is_none() {
        return Err(begun.cut());
    }
    let handed = forward.end_round(&round).await?;
    round.end();
    Ok((round, handed))
}

/// Forwards a stream unchanged, except for errors.
pub(super) async fn relay(mut begun: Begun, events: &mpsc::Sender<Event>) -> Result<(), ChatError> {
    if begun.is_whole() {
        let piece = Value::Object(begun.into_piece().await?);
        return send(events, Event::Data(piece.to_string())).await;
    }
    let mut finished = false;
    while let Some(data) = begun.event().await? {
        if data == "[DONE]" {
            return Ok(());
        }
        let piece = parse(&begun, &data)?;
        finished |=
            piece.get("choices").is_some_and(|choices| choices[0]["finish_reason"].is_string());
        send(events, Event::Data(data)).await?;
    }
    if finished { Ok(()) } else { Err(begun.cut()) }
}

fn parse(begun: &Begun, data: &str) -> Result<Map<String, Value>, ChatError> {
    match serde_json::from_str::<Value>(data) {
        Ok(Value::Object(piece))
            if piece.contains_key("error") && !piece.contains_key("choices") =>
        {
            Err(begun.complaint(&Value::Object(piece)))
        }
        Ok(Value::Object(piece)) => Ok(piece),
        Ok(_) | Err(_) => Err(begun.rubbish("an event of its stream is not a JSON object")),
    }
}
