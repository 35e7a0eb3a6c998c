//! The trace of a call.

use uuid::Uuid;

/// The W3C trace context of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    pub trace_id: u128,
    /// The caller's span; 0 if the trace begins here.
    pub parent: u64,
    /// The call's own span, the parent of the provider's spans.
    pub span: u64,
    pub sampled: bool,
}

impl TraceContext {
    /// Starts a new trace.
    pub fn root() -> Self {
        let (trace_id, span) = Uuid::new_v4().as_u64_pair();
        Self { trace_id: Uuid::new_v4().as_u128(), parent: 0, span: span ^ trace_id, sampled: true }
    }

    /// Continues the caller's trace, from the first well-formed header. Starts a new one if there
    /// is none.
    pub fn continue_from<'a>(traceparents: impl IntoIterator<Item = &'a str>) -> Self {
        traceparents.into_iter().find_map(Self::parse).unwrap_or_else(Self::root)
    }

    fn parse(header: &str) -> Option<Self> {
        let mut parts = header.trim().split('-');
        let (version, trace, parent, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        // `from_str_radix` also accepts a sign.
        let digits = |text: &str, count: usize| {
            text.len() == count && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let shaped = digits(version, 2)
            && version != "ff"
            && digits(trace, 32)
            && digits(parent, 16)
            && digits(flags, 2);
        let future_version = version != "00";
        if !shaped || (parts.next().is_some() && !future_version) {
            return None;
        }
        let trace_id = u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0)?;
        let parent = u64::from_str_radix(parent, 16).ok().filter(|id| *id != 0)?;
        let sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
        Some(Self { trace_id, parent, sampled, ..Self::root() })
    }

    /// Returns the header to send to the next service.
    pub fn traceparent(&self) -> String {
        let (mut trace, mut span) = ([0; 32], [0; 32]);
        let trace = self.encode_trace_id(&mut trace);
        // Every call formats this header, and `{:016x}` takes several times as long.
        let span = &hex(u128::from(self.span), &mut span)[16..];
        ["00-", trace, "-", span, if self.sampled { "-01" } else { "-00" }].concat()
    }

    /// Returns the trace id as 32 hexadecimal digits.
    pub fn encode_trace_id<'b>(&self, buffer: &'b mut [u8; 32]) -> &'b str {
        hex(self.trace_id, buffer)
    }
}

fn hex(number: u128, buffer: &mut [u8; 32]) -> &str {
    Uuid::from_u128(number).as_simple().encode_lower(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_trace(header: &str, accepted: bool) {
        let trace = TraceContext::continue_from(Some(header));
        assert_eq!(trace.parent != 0, accepted, "{header}");
        assert_ne!(trace.trace_id, 0);
        assert_ne!(trace.span, 0);
    }

    #[test]
    fn trace_headers() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        check_trace(good, true);
        check_trace(
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-the-future-brings",
            true,
        );
        check_trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", false);
        check_trace("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false);
        check_trace("00-00000000000000000000000000000000-00f067aa0ba902b7-01", false);
        check_trace("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false);
        check_trace("00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false);
        check_trace("zz-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false);
        check_trace("00-é", false);
        check_trace("", false);
        assert_eq!(TraceContext::continue_from(["", good]).parent, 0x00f0_67aa_0ba9_02b7);
        let trace = TraceContext::continue_from(Some(good));
        assert!(trace.traceparent().starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
        assert!(trace.traceparent().ends_with("-01"));
        let trace = TraceContext { trace_id: 0xa, parent: 0, span: 0xb, sampled: false };
        assert_eq!(trace.traceparent(), "00-0000000000000000000000000000000a-000000000000000b-00");
        assert_ne!(trace.span, trace.parent);
    }

    proptest::proptest! {
        #[test]
        fn no_trace_header_breaks_the_reader(header in proptest::prelude::any::<String>(), hex in "[0-9a-fA-F-]{0,60}") {
            for header in [header, hex] {
                let trace = TraceContext::continue_from(Some(header.as_str()));
                proptest::prop_assert_eq!(TraceContext::continue_from([&*trace.traceparent()]).trace_id, trace.trace_id);
            }
        }

        #[test]
        fn an_accepted_trace_is_written_unchanged(
            version in "[0-9a-z+]{2}", trace in "[0-9a-f+-]{31,33}", span in "[0-9a-f+]{15,17}", flags in "[0-9a-f+]{1,3}",
        ) {
            if let Some(read) = TraceContext::parse(&format!("{version}-{trace}-{span}-{flags}")) {
                proptest::prop_assert_eq!(format!("{:032x}", read.trace_id), trace);
                proptest::prop_assert_eq!(format!("{:016x}", read.parent), span);
            }
        }
    }
}
