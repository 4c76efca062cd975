//! The bearer token of TCP clients.

use std::fmt;
#[cfg(feature = "server")]
use std::io;

#[cfg(feature = "server")]
use subtle::ConstantTimeEq;

use crate::Endpoint;

/// A bearer token.
#[derive(Clone)]
pub struct Token(String);

/// The token is too short, or not valid in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token has at least {LEAST} characters, all of them visible ASCII: make one with `openssl rand -hex 32`")]
pub struct BadToken;

const LEAST: usize = 16;

impl Token {
    /// Parses a token, ignoring surrounding white space.
    ///
    /// # Errors
    /// If it is too short, or has invalid characters.
    pub fn new(text: &str) -> Result<Self, BadToken> {
        let text = text.trim();
        let good = text.len() >= LEAST && text.bytes().all(|byte| byte.is_ascii_graphic());
        if good { Ok(Self(text.to_owned())) } else { Err(BadToken) }
    }

    /// Generates a token.
    ///
    /// # Errors
    /// The system's error if it has no random numbers.
    #[cfg(feature = "server")]
    pub fn generate() -> io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Returns the token.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the URL of an agent's live page with the token behind the `#`, which a browser does not send.
    pub fn page(&self, endpoint: &Endpoint) -> String {
        format!("{endpoint}/#token={}", self.0)
    }

    /// Returns the value of the `Authorization` header.
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    #[cfg(feature = "server")]
    /// Checks an `Authorization` header in constant time.
    pub(crate) fn is_proved_by(&self, header: &[u8]) -> bool {
        let Some((scheme, given)) = header.split_at_checked("Bearer ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"Bearer ") && bool::from(given.ct_eq(self.0.as_bytes()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::*;

    #[test]
    fn tokens() {
        for (text, good) in [("0123456789abcdef", true), (" 0123456789abcdef\n", true), ("short", false), ("", false)] {
            assert_eq!(Token::new(text).is_ok(), good, "{text:?}");
        }
        assert!(Token::new("0123456789abcdef 0123").is_err());
        let (one, other) = (Token::generate().unwrap(), Token::generate().unwrap());
        assert!(one.as_str().len() == 64 && one.as_str() != other.as_str());
        assert!(Token::new(one.as_str()).is_ok());
        let page = Token::new("0123456789abcdef").unwrap().page(&"127.0.0.1:80".parse().unwrap());
        assert_eq!(page, "http://127.0.0.1:80/#token=0123456789abcdef");
    }

    #[test]
    fn only_the_same_token_is_accepted() {
        let token = Token::new("0123456789abcdef").unwrap();
        for (header, good) in [
            ("Bearer 0123456789abcdef", true),
            ("bearer 0123456789abcdef", true),
            ("Bearer 0123456789abcdeg", false),
            ("Bearer 0123456789abcde", false),
            ("Bearer 0123456789abcdef0", false),
            ("Bearer ", false),
            ("Basic 0123456789abcdef", false),
            ("0123456789abcdef", false),
            ("", false),
        ] {
            assert_eq!(token.is_proved_by(header.as_bytes()), good, "{header:?}");
        }
        assert_eq!(token.header(), "Bearer 0123456789abcdef");
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
}
