//! What a panic ends: a statement, a session, or the process.
//!
//! A panic says that our own code is wrong. Where it can have touched nothing that others share, it
//! ends what it happened in, and nothing else: a thread says so with [`contained`], around parsing,
//! binding, planning and evaluating, and catches the panic. Within such a region a thread may come
//! to what others share: latches, uncommitted versions, the log. It says so with [`vital`], and a
//! panic there ends the process, as one in a thread does that never said anything: what is
//! acknowledged is safe in the log, and what is in memory may be wrong.
//!
//! The hook that [`decide`] installs does the deciding, when the panic happens, before anything
//! unwinds. Without it (in tests, which want to see their panics) all panics unwind.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    cell::Cell,
    panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind},
    process,
    sync::OnceLock,
};

thread_local! {
    static PLACE: Cell<Place> = const { Cell::new(Place::Outside) };
}

/// How far a panic of this thread reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In a thread of the process that contains nothing.
    Outside,
    /// In something that may end alone: what it is.
    Contained(&'static str),
    /// In something that others share: what it is.
    Vital(&'static str),
}

/// A thread's place until this is dropped; then it is where it was before.
#[derive(Debug)]
#[must_use = "it ends where it is dropped"]
pub struct Region {
    before: Place,
    // Of this thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl Region {
    fn enter(place: Place) -> Self {
        Self { before: PLACE.replace(place), _here: std::marker::PhantomData }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        PLACE.set(self.before);
    }
}

/// A panic that was caught: what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caught(pub String);

/// From here on a panic of this thread ends `what`, and the caller that catches it continues.
/// Within something vital this changes nothing.
pub fn containing(what: &'static str) -> Region {
    Region::enter(match PLACE.get() {
        Place::Outside | Place::Contained(_) => Place::Contained(what),
        vital @ Place::Vital(_) => vital,
    })
}

/// From here on a panic of this thread ends the process, since `what` is shared with others or must
/// not be left half done.
pub fn vital(what: &'static str) -> Region {
    Region::enter(Place::Vital(what))
}

/// Does `work`, a panic in which ends `what` and nothing else. Whatever `work` shares with others
/// must be [`vital`] while it is not whole.
///
/// # Errors
/// [`Caught`] when it panics.
pub fn contained<T>(what: &'static str, work: impl FnOnce() -> T) -> Result<T, Caught> {
    let _region = containing(what);
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        Caught(text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default())
    })
}

/// From now on panics end what they happen in: the process, but where that is contained. Once in a
/// process. `handler` reports what has happened, and whether the process ends when it returns; it
/// does not block for long.
pub fn decide(handler: impl Fn(&str, bool) + Send + Sync + 'static) {
    let _ = HANDLER.set(Box::new(handler));
    panic::set_hook(Box::new(|info| {
        let fallen = describe(info);
        let why = match PLACE.try_with(Cell::get).unwrap_or(Place::Outside) {
            Place::Contained(what) => {
                return report(&format!("{fallen}; that ends {what}, and nothing else; please report it"), false);
            }
            Place::Vital(what) => format!("it was in {what}, which others depend on"),
            Place::Outside => format!("it was in the node's thread \"{}\"", thread_name()),
        };
        end(&format!(
            "{fallen}; that ends the node, as kill -9 would: {why}; nothing acknowledged is lost: start it again, and please \
             report it"
        ));
    }));
}

/// Ends the process at once, because it cannot continue: `why`. What is acknowledged is safe in the
/// log.
pub fn end(why: &str) -> ! {
    report(why, true);
    process::abort();
}

type Handler = Box<dyn Fn(&str, bool) + Send + Sync>;

static HANDLER: OnceLock<Handler> = OnceLock::new();

fn report(what: &str, ends: bool) {
    match HANDLER.get() {
        Some(handler) => handler(what, ends),
        None => eprintln!("freshet: {what}"),
    }
}

fn thread_name() -> String {
    std::thread::current().name().unwrap_or("?").to_owned()
}

/// As the standard library has it, with the stack where RUST_BACKTRACE asks for that.
fn describe(info: &PanicHookInfo<'_>) -> String {
    let message = info.payload_as_str().unwrap_or("for no reason that can be shown");
    let place = info.location().map_or_else(|| "?".to_owned(), ToString::to_string);
    let mut text = format!("thread '{}' panicked at {place}: {message}", thread_name());
    let stack = Backtrace::capture();
    if stack.status() == BacktraceStatus::Captured {
        text.push_str(&format!("; stack: {stack}"));
    }
    text
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::process::{Command, Output};

    use super::*;

    const CHILD: &str = "FRESHET_TEST_OF_PANICS";

    fn fall(place: &str) {
        match place {
            "outside" => panic!("fell outside"),
            "contained" => {
                let caught = contained("a statement", || -> () { panic!("fell {}", "inside") });
                assert_eq!(caught, Err(Caught("fell inside".to_owned())));
                assert_eq!(contained("a statement", || 5), Ok(5));
            }
            "vital" => drop(contained("a statement", || {
                let _vital = vital("the log");
                // Code that is called back from there contains nothing.
                drop(contained("a comparison", || panic!("fell")));
            })),
            "between" => {
                let caught = contained("a statement", || {
                    drop(vital("the log"));
                    panic!("fell")
                });
                assert!(caught.is_err());
            }
            "after" => {
                drop(contained("a statement", || ()));
                panic!("fell")
            }
            other => unreachable!("{other}"),
        }
    }

    /// Runs this test in a process of its own that falls in a place.
    fn in_process(place: &str) -> Output {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let name = "panics::tests::a_panic_ends_what_it_happens_in";
        child.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(CHILD, place);
        child.output().unwrap()
    }

    #[test]
    fn a_panic_ends_what_it_happens_in() {
        use std::os::unix::process::ExitStatusExt;

        if let Ok(place) = std::env::var(CHILD) {
            decide(|what, _| eprintln!("{what}"));
            return fall(&place);
        }
        for (place, survives, expected) in [
            ("contained", true, "ends a statement, and nothing else"),
            ("between", true, "ends a statement, and nothing else"),
            ("outside", false, "ends the node, as kill -9 would: it was in the node's thread"),
            ("after", false, "ends the node, as kill -9 would: it was in the node's thread"),
            ("vital", false, "ends the node, as kill -9 would: it was in the log, which others depend on"),
        ] {
            let Output { status, stderr, .. } = in_process(place);
            let stderr = String::from_utf8_lossy(&stderr);
            assert_eq!(status.success(), survives, "{place}: {stderr}");
            assert_eq!(status.signal().is_none(), survives, "{place}: {stderr}");
            assert!(stderr.contains(expected), "{place}: {stderr}");
        }
    }
}
