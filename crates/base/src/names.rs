//! Enums whose values have names: they are parsed as they print, and each name stands in one place.

/// Has an enum print by the names of its values, and be parsed from them. What is no name is
/// answered with all of them.
///
/// ```
/// #[derive(Debug, PartialEq)]
/// enum Colour {
///     Red,
///     DarkBlue,
/// }
///
/// freshet_base::named!(Colour, "colour", { Red: "red", DarkBlue: "dark-blue" });
///
/// assert_eq!("dark-blue".parse(), Ok(Colour::DarkBlue));
/// assert_eq!(Colour::Red.to_string(), "red");
/// let unknown = "unknown colour \"green\": use red or dark-blue";
/// assert_eq!("green".parse::<Colour>(), Err(unknown.to_owned()));
/// ```
#[macro_export]
macro_rules! named {
    ($kind:ty, $what:literal, { $($value:ident: $name:literal),+ $(,)? }) => {
        impl ::std::fmt::Display for $kind {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(match self {
                    $(Self::$value => $name,)+
                })
            }
        }

        impl ::std::str::FromStr for $kind {
            type Err = ::std::string::String;

            fn from_str(text: &str) -> ::std::result::Result<Self, Self::Err> {
                match text {
                    $($name => Ok(Self::$value),)+
                    _ => Err($crate::names::unknown($what, text, &[$($name),+])),
                }
            }
        }
    };
}

/// Says that `text` is none of `names`.
#[doc(hidden)]
pub fn unknown(what: &str, text: &str, names: &[&str]) -> String {
    let (last, others) = names.split_last().unwrap_or((&"", &[]));
    let or = if others.is_empty() { "" } else { " or " };
    format!("unknown {what} {text:?}: use {}{or}{last}", others.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_are_listed() {
        assert_eq!(unknown("thing", "x\n", &["a"]), "unknown thing \"x\\n\": use a");
        assert_eq!(unknown("thing", "", &["a", "b", "c"]), "unknown thing \"\": use a, b or c");
    }
}
