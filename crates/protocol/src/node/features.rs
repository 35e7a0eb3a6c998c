/// The extensions that a peer supports. An extension that is a frame has the frame's name, except
/// `events`.
///
/// ```
/// use sa_protocol::node::Features;
///
/// let features = Features::from_names(["tool_cancel", "progress", "teleport"]);
/// assert!(features.cancel && features.progress && !features.chunk);
/// assert_eq!(features.names(), ["tool_cancel", "tool_progress"]);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Features {
    /// `tool_cancel`
    pub cancel: bool,
    /// `tool_progress`
    pub progress: bool,
    /// `tool_chunk`
    pub chunk: bool,
    /// `attachments`, on responses and chunks
    pub attachments: bool,
    /// `bin_probe` and `bin_probe_result`
    pub bin_probe: bool,
    /// `node_event`
    pub events: bool,
}

impl Features {
    /// Every feature that this version knows.
    pub const ALL: Self = Self {
        cancel: true,
        progress: true,
        chunk: true,
        attachments: true,
        bin_probe: true,
        events: true,
    };

    /// Returns the features with these names. Unknown names are ignored, and `cancel` means the
    /// same as `tool_cancel`.
    pub fn from_names<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Self {
        let mut features = Self::default();
        for name in names {
            match name.as_ref().strip_prefix("tool_").unwrap_or(name.as_ref()) {
                "cancel" => features.cancel = true,
                "progress" => features.progress = true,
                "chunk" => features.chunk = true,
                "attachments" => features.attachments = true,
                "bin_probe" => features.bin_probe = true,
                "events" => features.events = true,
                _ => {}
            }
        }
        features
    }

    /// Returns the names of the features as they are written in frames.
    pub fn names(self) -> Vec<&'static str> {
        [
            (self.cancel, "tool_cancel"),
            (self.progress, "tool_progress"),
            (self.chunk, "tool_chunk"),
            (self.attachments, "attachments"),
            (self.bin_probe, "bin_probe"),
            (self.events, "events"),
        ]
        .into_iter()
        .filter_map(|(has, name)| has.then_some(name))
        .collect()
    }
}
