use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt::Write as _;

/// Returns whether a character is invisible or controls a terminal: Unicode's categories Cc, Cf, Zl and Zp.
///
/// ```
/// use peerlock_types::is_hidden;
/// assert!(is_hidden('\u{1b}') && is_hidden('\u{200b}') && is_hidden('\u{202e}'));
/// assert!(!is_hidden(' ') && !is_hidden('ü') && !is_hidden('☂'));
/// ```
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
            | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
}

/// Escapes characters that are invisible or would move the cursor.
///
/// ```
/// use peerlock_types::visible;
/// assert_eq!(visible("plain"), "plain");
/// assert_eq!(visible("red\u{1b}[31m"), "red\\u{1b}[31m");
/// ```
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut written = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match is_hidden(c) {
            true => _ = write!(written, "{}", c.escape_unicode()),
            false => written.push(c),
        }
    }
    Cow::Owned(written)
}
