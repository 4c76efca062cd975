//! Things that a person calls by name.

use thiserror::Error;

/// Nothing of this kind has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown {what} {name:?}: use {}", .known.join(" or "))] // All of them have two so far.
pub struct UnknownName {
    what: &'static str,
    name: String,
    known: &'static [&'static str],
}

impl UnknownName {
    /// It is none of the `known` ones.
    pub fn new(what: &'static str, name: &str, known: &'static [&'static str]) -> Self {
        Self { what, name: name.into(), known }
    }
}

/// Gives each variant of an enum its name: how it is shown, and what it is parsed from. The first word is what such a
/// thing is called in errors.
///
/// ```
/// #[derive(Debug, PartialEq)]
/// enum Colour {
///     Red,
///     Green,
/// }
/// peerlock_sim::names!("colour", Colour { Red = "red", Green = "green" });
/// assert_eq!(("red".parse(), Colour::Green.to_string()), (Ok(Colour::Red), "green".to_string()));
/// assert_eq!("blue".parse::<Colour>().unwrap_err().to_string(), "unknown colour \"blue\": use red or green");
/// ```
#[macro_export]
macro_rules! names {
    ($what:literal, $type:ident { $($variant:ident = $name:literal),+ }) => {
        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $name),+
                })
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = $crate::UnknownName;

            fn from_str(name: &str) -> Result<Self, $crate::UnknownName> {
                match name {
                    $($name => Ok(Self::$variant),)+
                    _ => Err($crate::UnknownName::new($what, name, &[$($name),+])),
                }
            }
        }
    };
}
