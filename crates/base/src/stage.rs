//! The stages through which a transaction goes: `execute`, `certify`, `log`, `persist`, `ship`,
//! `ack` and `commit` on its primary; `receive`, `persist`, `ack`, `replay` and `visible` on a
//! standby.
//!
//! One word names a stage everywhere: its threads, its watermark, its trace spans, the tables of
//! ARCHITECTURE.md. [`step!`](crate::step!) opens a span in each function that works on the way of
//! a commit. The spans are those of `tracing`, of the target `stage` and the level TRACE: off
//! unless a subscriber asks for them. Off, one costs a relaxed load and a branch that is never
//! taken.

use std::fmt;

#[doc(hidden)]
pub use tracing::{Span, level_filters::LevelFilter, span::EnteredSpan, trace_span};

/// A stage of the commit path, or of the standby path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// A transaction reads its snapshot, and writes versions that nobody else sees yet.
    Execute,
    /// It takes its LSN, and is found to have a place in the order of LSNs.
    Certify,
    /// Its block is copied to its place in the ring.
    Log,
    /// The bytes become durable on this node, primary or standby.
    Persist,
    /// The same bytes are written into the memory of each standby.
    Ship,
    /// The standby says what is durable there, and the primary hears it.
    Ack,
    /// The safety level's rule holds: the client is told.
    Commit,
    /// What a primary has written here is found to be whole, and becomes part of this node's log.
    Receive,
    /// Records are announced in the replay arrays and indexes.
    Replay,
    /// Readers see it.
    Visible,
}

impl Stage {
    /// Its word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::Certify => "certify",
            Self::Log => "log",
            Self::Persist => "persist",
            Self::Ship => "ship",
            Self::Ack => "ack",
            Self::Commit => "commit",
            Self::Receive => "receive",
            Self::Replay => "replay",
            Self::Visible => "visible",
        }
    }

    /// What its watermark is called: everything below it is through this stage.
    pub const fn watermark(self) -> &'static str {
        match self {
            Self::Execute => "executed",
            Self::Certify => "reserved",
            Self::Log => "filled",
            Self::Persist => "durable",
            Self::Ship => "shipped",
            Self::Ack => "acked",
            Self::Commit => "committed",
            Self::Receive => "received",
            Self::Replay => "replayed",
            Self::Visible => "visible",
        }
    }

    /// The name of its thread with this number, or for this node: the system keeps 15 bytes of it.
    pub fn thread(self, which: impl fmt::Display) -> String {
        format!("{}-{which}", self.name())
    }
}

/// Whether somebody wants spans of level TRACE.
#[inline]
pub fn is_traced() -> bool {
    // A relaxed load in there, of a flag without data behind it: it needs no partner. A span of a
    // thread that sees a change late is missing, or one too many.
    LevelFilter::current() == LevelFilter::TRACE
}

/// Enters the span that `make` makes. Out of line: it is hardly ever called.
#[doc(hidden)]
#[cold]
#[inline(never)]
pub fn enter(make: impl FnOnce() -> Span) -> EnteredSpan {
    make().entered()
}

/// The function in which `item` is defined, by the latter's type name: with its type, if it has
/// one, without modules and generic arguments.
#[doc(hidden)]
pub fn function_of<T>(_item: &T) -> String {
    let mut words = parts_of(std::any::type_name::<T>());
    words.pop();
    words.retain(|word| *word != "{{closure}}");
    let function = words.pop().unwrap_or_default();
    let owner = words.pop().unwrap_or_default();
    // It may be "Type<G>", "<Type as Trait>", "<impl Type>" or "<impl Trait for Type>".
    let owner = owner.trim_start_matches('<').trim_start_matches("impl ");
    let owner = owner.split(" as ").next().unwrap_or_default();
    let owner = owner.rsplit(" for ").next().unwrap_or_default();
    let owner = owner.split('<').next().unwrap_or_default().trim_end_matches('>');
    match owner.rsplit("::").next() {
        Some(owner) if owner.starts_with(char::is_uppercase) => format!("{owner}::{function}"),
        _ => function.to_owned(),
    }
}

/// The parts of a path, those within angle brackets left whole.
fn parts_of(path: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, char) in path.char_indices() {
        match char {
            '<' => depth += 1,
            '>' => depth -= 1,
            ':' if depth == 0 => {
                parts.push(&path[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&path[from..]);
    parts.retain(|part| !part.is_empty());
    parts
}

/// Opens the span of a step: until the block ends in which it stands, this function works at this
/// stage, on the range of the log from the first LSN to the second, where it has one.
#[macro_export]
macro_rules! step {
    ($stage:ident) => {
        $crate::step!($stage, $crate::Lsn::ZERO, $crate::Lsn::ZERO)
    };
    ($stage:ident, $from:expr, $to:expr) => {
        let _step = {
            fn here() {}
            $crate::stage::is_traced().then(|| {
                $crate::stage::enter(|| {
                    let (from, to): ($crate::Lsn, $crate::Lsn) = ($from, $to);
                    let function = $crate::stage::function_of(&here);
                    $crate::stage::trace_span!(
                        target: "stage",
                        $crate::Stage::$stage.name(),
                        function,
                        from = from.0,
                        to = to.0
                    )
                })
            })
        };
    };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Lsn;

    trait Acts {
        fn act(&self) -> String;
    }

    struct Actor<T>(T);

    impl<T> Acts for Actor<T> {
        fn act(&self) -> String {
            fn here() {}
            function_of(&here)
        }
    }

    impl<T> Actor<T> {
        fn own() -> String {
            fn here() {}
            let closure = || function_of(&here);
            closure()
        }
    }

    mod elsewhere {
        impl super::Actor<u8> {
            pub(super) fn other() -> String {
                fn here() {}
                super::function_of(&here)
            }
        }

        impl super::Acts for u8 {
            fn act(&self) -> String {
                fn here() {}
                super::function_of(&here)
            }
        }
    }

    #[test]
    fn functions_are_named_with_their_types() {
        fn here() {}
        assert_eq!(function_of(&here), "functions_are_named_with_their_types");
        assert_eq!(Actor(vec![1]).act(), "Actor::act");
        assert_eq!(Actor::<Vec<u8>>::own(), "Actor::own");
        assert_eq!(Actor::<u8>::other(), "Actor::other");
        assert_eq!(7u8.act(), "act");
    }

    #[test]
    fn nobody_traces_unless_asked_to() {
        assert!(!is_traced());
        let computed = || -> Lsn { panic!("nobody wants it") };
        step!(Persist, computed(), computed());
    }
}
