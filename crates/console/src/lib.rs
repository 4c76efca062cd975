//! Command-line helpers of the programs `peerlock` and `peerlock-lab`.

mod near;
mod pages;
mod parsing;
mod progress;
mod say;

use std::time::Duration;

use peerlock_types::{Span, SpanError};

pub use near::near;
pub use pages::{completions, man};
pub use parsing::after_parsing;
pub use progress::progress_bar;
pub use say::{notify, say};

/// The exit code for wrong options, as in sysexits.h.
pub const USAGE: u8 = 64;

/// Parses a duration. A bare number is seconds, as for `flock`, `timeout` and `sleep`.
///
/// # Errors
/// If the text is not a duration.
pub fn duration(text: &str) -> Result<Duration, SpanError> {
    let is_number = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let span: Span = if is_number { format!("{text}s").parse() } else { text.parse() }?;
    Ok(Duration::from_nanos(span.as_nanos()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn bare_number_is_seconds() {
        for (text, millis) in
            [("5", Some(5000)), ("0.5", Some(500)), ("5 min", Some(300_000)), ("5x", None), ("", None), (".", None)]
        {
            assert_eq!(super::duration(text).ok().map(|it| it.as_millis()), millis, "{text:?}");
        }
    }
}
