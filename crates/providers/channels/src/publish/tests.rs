use proptest::prelude::*;
use serde_json::json;

use super::*;

const KINDS: [&str; 7] = [
    "message",
    "update-message",
    "error",
    "method-call",
    "method-result",
    "method-cancel",
    "other",
];

fn usual() -> serde_json::Value {
    json!({ "id": "00000000-0000-4000-8000-000000000001", "callId": "c", "methodName": "f", "providerId": "w", "args": {}, "content": {}, "complete": true,
        "isError": false, "progress": 1.5 })
}

proptest! {
    #[test]
    fn a_payload_has_an_id_that_fits_or_is_refused_in_few_words(
        kind in prop::sample::select(&KINDS[..]), text in sa_hostile::nearly(usual()),
    ) {
        match Subject::read(kind, &text) {
            Ok(Subject::Plain) => prop_assert_eq!(kind, "other"),
            Ok(Subject::Message(id) | Subject::Update(id) | Subject::Cancel(id)) => prop_assert!((1..=MAX_ID).contains(&id.len())),
            Ok(Subject::Call(call)) => prop_assert!((1..=MAX_ID).contains(&call.call_id.len())),
            Ok(Subject::Result(result)) => prop_assert!((1..=MAX_ID).contains(&result.call_id.len())),
            Err(refusal) => prop_assert!(refusal.message.len() < sa_hostile::SHORT, "{} bytes", refusal.message.len()),
        }
    }

    #[test]
    fn a_list_is_no_payload_with_an_id(kind in prop::sample::select(&KINDS[..6]), list in sa_hostile::list(&["m", "f", "w"])) {
        prop_assert!(Subject::read(kind, &list).is_err());
    }

    #[test]
    fn attachments_that_were_checked_are_parted(
        sizes in prop::collection::vec(prop_oneof![3 => 0_u64..20, 1 => any::<u64>()], 0..6), bytes in sa_hostile::noise(),
    ) {
        let meta = |size| AttachmentMeta { id: None, mime_type: "a/b".into(), name: None, size };
        let described: Vec<_> = sizes.iter().copied().map(meta).collect();
        if attachments::check(&described, bytes.len(), 1_000).is_ok() {
            let parted = parts(&described, &Bytes::from(bytes.clone()));
            prop_assert_eq!(parted.iter().flat_map(|part| part.data.to_vec()).collect::<Vec<_>>(), bytes);
        }
    }
}
