use sa_text::json::ObjectWriter;

use crate::Attachment;

/// Begins a frame of this type.
pub(crate) fn begin<'b>(out: &'b mut String, kind: &'static str) -> ObjectWriter<&'b mut String> {
    ObjectWriter::begin(out).text("type", kind)
}

/// Adds the attachments of a frame, if there are any.
pub(crate) fn add_attachments<'b>(
    frame: ObjectWriter<&'b mut String>,
    attachments: &[Attachment<'_>],
) -> ObjectWriter<&'b mut String> {
    if attachments.is_empty() {
        return frame;
    }
    frame.objects("attachments", attachments, |object, attachment| {
        object
            .text("mime_type", &attachment.mime_type)
            .opt_text("name", attachment.name.as_deref())
            .text("data", &attachment.data)
    })
}
