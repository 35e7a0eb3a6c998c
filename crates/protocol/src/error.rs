use std::fmt;

/// Why a frame could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameError {
    kind: FrameErrorKind,
    frame: Option<Box<str>>,
    id: Option<Box<str>>,
    detail: Box<str>,
}

/// What is wrong with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameErrorKind {
    /// It is not a JSON object, or has no `type`, or repeats a field.
    Malformed,
    /// It is nested deeper than [`MAX_NESTING`](crate::MAX_NESTING).
    TooDeep,
    /// A field is not there that this type of frame needs.
    MissingField(&'static str),
    /// A field is there, but of the wrong form.
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

    /// What is wrong, for programs.
    pub fn kind(&self) -> FrameErrorKind {
        self.kind
    }

    /// The frame's `type`, when it could be read.
    pub fn frame_type(&self) -> Option<&str> {
        self.frame.as_deref()
    }

    /// The frame's `request_id` (for nodes) or `id` (for calls), when it could be read: enough to fail that one call
    /// instead of waiting for its timeout.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.frame {
            Some(frame) => write!(f, "the frame `{}` is not usable: ", frame.escape_debug())?,
            None => f.write_str("the frame is not usable: ")?,
        }
        match self.kind {
            FrameErrorKind::Malformed => write!(f, "{}", self.detail),
            FrameErrorKind::TooDeep => {
                write!(f, "it is nested deeper than {} levels; flatten it", crate::MAX_NESTING)
            }
            FrameErrorKind::MissingField(field) => write!(f, "it needs the field `{field}`"),
            FrameErrorKind::InvalidField(field) => {
                write!(f, "its field `{field}` is wrong: {}", self.detail)
            }
        }
    }
}

impl std::error::Error for FrameError {}
