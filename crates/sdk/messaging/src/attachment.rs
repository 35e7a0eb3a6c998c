use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use sa_protocol::channel::AttachmentMeta;

use crate::Error;

/// The maximum number of attachments of one message.
const MAX_ATTACHMENTS: usize = 64;
const MAX_TEXT: usize = 256;

/// Bytes that are sent with a message, unchanged.
#[derive(Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The id, unique in its message. The server assigns one if it is empty.
    pub id: String,
    /// The MIME type of the bytes, such as `image/png`.
    pub mime_type: String,
    /// The file's name, if it has one.
    pub name: Option<String>,
    /// The bytes. Clones share them.
    pub data: Bytes,
}

impl Attachment {
    /// Creates an attachment to which the server assigns an id.
    pub fn new(mime_type: impl Into<String>, data: impl Into<Bytes>) -> Self {
        Self { id: String::new(), mime_type: mime_type.into(), name: None, data: data.into() }
    }

    /// Sets the id.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// Sets the file's name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    pub(crate) fn meta(&self) -> AttachmentMeta {
        AttachmentMeta {
            id: Some(self.id.clone()).filter(|id| !id.is_empty()),
            mime_type: self.mime_type.clone(),
            name: self.name.clone(),
            size: self.data.len() as u64,
        }
    }
}

/// Checks attachments before they are sent.
pub(crate) fn check(attachments: &[Attachment]) -> Result<(), Error> {
    let bad = |why: String| Err(Error::sent("the attachments", why));
    if attachments.len() > MAX_ATTACHMENTS {
        return bad(format!(
            "there are {}, but a message may have at most {MAX_ATTACHMENTS}",
            attachments.len()
        ));
    }
    let mut ids = HashSet::new();
    for attachment in attachments {
        let texts = [Some(&attachment.mime_type), attachment.name.as_ref()];
        if texts.into_iter().flatten().any(String::is_empty)
            || [Some(&attachment.id), Some(&attachment.mime_type), attachment.name.as_ref()]
                .into_iter()
                .flatten()
                .any(|text| text.len() > MAX_TEXT || text.contains(char::is_control))
        {
            return bad(format!(
                "id, name and MIME type must have 1 to {MAX_TEXT} bytes of visible text"
            ));
        }
        if !attachment.id.is_empty() && !ids.insert(&attachment.id) {
            return bad(format!(
                "two have the id \"{}\"; use a different id for each",
                attachment.id
            ));
        }
    }
    Ok(())
}

/// Returns the attachments of a frame. They share the frame's bytes.
pub(crate) fn split(
    described: Vec<AttachmentMeta>,
    bytes: &Bytes,
) -> Result<Vec<Attachment>, String> {
    let mut at = 0_usize;
    let mut attachments = Vec::with_capacity(described.len());
    for meta in described {
        let end = usize::try_from(meta.size).ok().and_then(|size| at.checked_add(size));
        let Some(end) = end.filter(|end| *end <= bytes.len()) else {
            return Err(format!(
                "its attachments are announced as longer than the {} bytes that were received",
                bytes.len()
            ));
        };
        let data = bytes.slice(at..end);
        attachments.push(Attachment {
            id: meta.id.unwrap_or_default(),
            mime_type: meta.mime_type,
            name: meta.name,
            data,
        });
        at = end;
    }
    Ok(attachments)
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment")
            .field("id", &self.id)
            .field("mime_type", &self.mime_type)
            .field("name", &self.name)
            .field("bytes", &self.data.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_usable_ones_are_sent() {
        let png = || Attachment::new("image/png", vec![1, 2]);
        assert!(check(&[png().id("a"), png().id("b"), png(), png()]).is_ok());
        assert!(check(&[png().id("a"), png().id("a")]).is_err());
        assert!(check(&[Attachment::new("", vec![])]).is_err());
        assert!(check(&[png().name("a\nb")]).is_err());
        assert!(check(&vec![png(); 65]).is_err());
    }

    #[test]
    fn sizes_that_lie_are_refused() {
        let meta = |size| AttachmentMeta { id: None, mime_type: "a/b".into(), name: None, size };
        let bytes = Bytes::from_static(b"abc");
        let parts = split(vec![meta(1), meta(2)], &bytes).unwrap();
        assert_eq!((&parts[0].data[..], &parts[1].data[..]), (&b"a"[..], &b"bc"[..]));
        assert!(split(vec![meta(1), meta(u64::MAX)], &bytes).is_err());
        assert!(split(vec![meta(4)], &bytes).is_err());
    }

    proptest::proptest! {
        #[test]
        fn parts_lie_one_after_another_within_what_came(
            sizes in proptest::collection::vec(proptest::prop_oneof![3 => 0_u64..20, 1 => proptest::prelude::any::<u64>()], 0..6),
            bytes in sa_hostile::noise(),
        ) {
            let meta = |size| AttachmentMeta { id: None, mime_type: "a/b".into(), name: None, size };
            let bytes = Bytes::from(bytes);
            if let Ok(parts) = split(sizes.iter().copied().map(meta).collect(), &bytes) {
                proptest::prop_assert!(parts.iter().map(|part| part.data.len() as u64).eq(sizes));
                proptest::prop_assert!(bytes.starts_with(&parts.iter().flat_map(|part| part.data.to_vec()).collect::<Vec<_>>()));
            }
        }
    }
}
