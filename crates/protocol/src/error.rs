use std::fmt;

/// The reason why a frame is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameError {
    kind: FrameErrorKind,
    frame: Option<Box<str>>,
    id: Option<Box<str>>,
    detail: Box<str>,
}

/// The kind of a [`FrameError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameErrorKind {
    /// The frame is not a JSON object, has no `type`, or repeats a field.
    Malformed,
    /// The frame is nested deeper than [`MAX_NESTING`](crate::MAX_NESTING).
    TooDeep,
    /// A field that this type of frame requires is missing.
    MissingField(&'static str),
    /// A field has the wrong form.
    InvalidField(&'static str),
}

impl FrameError {
    pub(crate) fn new(kind: FrameErrorKind, detail: impl fmt::Display) -> Self {
        Self { kind, frame: None, id: None, detail: detail.to_string().into() }
    }

    pub(crate) fn in_frame(mut self, frame: &str, id: Option<&str>) -> Self {
        self.frame = Some(frame.into());
        self.id = id.map(Into::into);
        self
    }

    /// Returns the kind of error, for programs.
    pub fn kind(&self) -> FrameErrorKind {
        self.kind
    }

    /// Returns the frame's `type`, if it could be read.
    pub fn frame_type(&self) -> Option<&str> {
        self.frame.as_deref()
    }

    /// Returns the frame's `request_id` (nodes) or `id` (calls), if it could be read. With it the
    /// receiver can fail that one call instead of waiting for its timeout.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.frame {
            Some(frame) => write!(f, "the frame `{}` is invalid: ", frame.escape_debug())?,
            None => f.write_str("the frame is invalid: ")?,
        }
        match self.kind {
            FrameErrorKind::Malformed => write!(f, "{}", self.detail),
            FrameErrorKind::TooDeep => {
                write!(f, "it is nested deeper than {} levels; flatten it", crate::MAX_NESTING)
            }
            FrameErrorKind::MissingField(field) => write!(f, "the field `{field}` is missing"),
            FrameErrorKind::InvalidField(field) => {
                write!(f, "the field `{field}` is invalid: {}", self.detail)
            }
        }
    }
}

impl std::error::Error for FrameError {}
