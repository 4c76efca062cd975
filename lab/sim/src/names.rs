use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown {what} {name:?}: use {}", .known.join(" or "))] // All of them have two so far.
pub struct UnknownName {
    what: &'static str,
    name: String,
    known: &'static [&'static str],
}

impl UnknownName {
    pub fn new(what: &'static str, name: &str, known: &'static [&'static str]) -> Self {
        Self { what, name: name.into(), known }
    }
}

/// Implements `Display` and `FromStr` for an enum by the names of its variants. The first argument is the noun for
/// error messages.
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
