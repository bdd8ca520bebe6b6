//! What this process says about itself: one line on standard error for each change of state, for
//! people or for machines.
//!
//! All crates use the macros of `tracing`; this module decides where messages go. It filters them
//! ([`levels`]), limits how many there are ([`limit`]), formats them ([`line`]) and hands them to a
//! thread that writes ([`queue`]). A thread that says something never waits for the reader.

mod levels;
mod limit;
mod line;
mod queue;

use std::{
    cell::RefCell,
    fmt,
    io::{self, Write},
    os::fd::AsFd,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU8, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tracing::{
    Event, Level, Metadata, Subscriber,
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
    subscriber::Interest,
};

pub use self::levels::Levels;
pub(crate) use self::line::plain;
use self::{
    limit::{Admission, Limit},
    line::{Fields, Line},
    queue::Queue,
};

/// What a line looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// For people: time, level, part, sentence, fields.
    #[default]
    Text,
    /// For machines: a JSON object.
    Json,
}

/// How long the end of the process waits for lines to be written.
const LAST: Duration = Duration::from_secs(1);

/// What the spans of stages belong to, and the only ones that are wanted.
const STAGES: &str = "stage";

thread_local! {
    /// The steps that this thread is in, each with when it began.
    static STEPS: RefCell<Vec<(&'static Metadata<'static>, Fields, Instant)>> = const { RefCell::new(Vec::new()) };
}

/// The messages of this process.
static MESSAGES: OnceLock<Messages> = OnceLock::new();

/// Takes all messages of the process, and hands them to the thread that writes.
#[derive(Clone)]
pub struct Messages(Arc<Shared>);

struct Shared {
    levels: RwLock<Levels>,
    format: AtomicU8,
    limit: Mutex<Limit>,
    queue: Queue,
    /// The clock of the limits.
    now: Box<dyn Fn() -> Instant + Send + Sync>,
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Messages")
    }
}

/// Starts writing messages to standard error. A second call in a process only changes format and
/// levels.
///
/// # Errors
/// When there is no descriptor or thread left.
pub fn begin(format: Format, levels: &Levels) -> io::Result<Messages> {
    if let Some(messages) = MESSAGES.get() {
        messages.set(format, levels);
        return Ok(messages.clone());
    }
    // Not the standard library's handle: a write that waits would hold its lock.
    let out = std::fs::File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let messages = Messages::new(format, levels.clone(), Box::new(Instant::now));
    messages.write_to(out)?;
    // Another thread may have been faster; then its value is used.
    let messages = MESSAGES.get_or_init(|| messages).clone();
    let _ = tracing::subscriber::set_global_default(messages.clone());
    Ok(messages)
}

/// The last message of a command that fails.
pub(crate) fn last_word(message: &str) {
    let Some(messages) = MESSAGES.get() else {
        eprintln!("freshet: {}", plain_lines(message));
        return;
    };
    match messages.format() {
        Format::Text => messages.0.queue.push(format!("freshet: {}\n", plain_lines(message))),
        Format::Json => messages.0.queue.push(messages.own(Level::ERROR, message, &[])),
    }
    messages.flush(LAST);
}

/// As [`plain`], but in lines: commands make some themselves.
fn plain_lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

/// Blocks until everything that was said is written, or for a moment.
pub(crate) fn flush() {
    if let Some(messages) = MESSAGES.get() {
        messages.flush(LAST);
    }
}

/// Reports a panic; see `freshet_base::panics`.
pub(crate) fn report_panic(what: &str, ends_the_process: bool) {
    let Some(messages) = MESSAGES.get() else {
        eprintln!("freshet: {what}");
        return;
    };
    messages.0.queue.push(messages.own(Level::ERROR, what, &[]));
    if ends_the_process {
        messages.flush(LAST);
    }
}

impl Messages {
    fn new(format: Format, levels: Levels, now: Box<dyn Fn() -> Instant + Send + Sync>) -> Self {
        let shared = Shared {
            levels: RwLock::new(levels),
            format: AtomicU8::new(format as u8),
            limit: Mutex::default(),
            queue: Queue::default(),
            now,
        };
        Self(Arc::new(shared))
    }

    /// Starts the thread that writes.
    fn write_to(&self, mut out: impl Write + AsFd + Send + 'static) -> io::Result<()> {
        let this = self.clone();
        let write = move || {
            loop {
                let more = this.next_suppressed();
                let (lines, dropped) = this.0.queue.take(more.map(|at| at.saturating_duration_since((this.0.now)())));
                this.report_suppressed();
                if dropped > 0 {
                    let line = this.own(
                        Level::WARN,
                        "lines were dropped here: the reader of these lines is too slow",
                        &[("lines", dropped)],
                    );
                    queue::write(&mut out, line.as_bytes());
                }
                for line in lines {
                    queue::write(&mut out, line.as_bytes());
                }
                this.0.queue.written();
            }
        };
        thread::Builder::new().name("messages".to_owned()).spawn(write)?;
        Ok(())
    }

    fn format(&self) -> Format {
        // Relaxed: it orders nothing.
        if self.0.format.load(Ordering::Relaxed) == Format::Json as u8 { Format::Json } else { Format::Text }
    }

    /// Changes format and levels from the next line on.
    pub(crate) fn set(&self, format: Format, levels: &Levels) {
        // Relaxed: it orders nothing.
        self.0.format.store(format as u8, Ordering::Relaxed);
        *self.0.levels.write().unwrap_or_else(PoisonError::into_inner) = levels.clone();
        tracing::callsite::rebuild_interest_cache();
    }

    fn flush(&self, patience: Duration) {
        // There is no later occasion to report what was left out.
        self.report_suppressed_by((self.0.now)() + limit::INTERVAL);
        self.0.queue.wait_written(Instant::now() + patience);
    }

    /// A line of this module, to which no limit applies.
    fn own(&self, level: Level, message: &str, counts: &[(&'static str, u64)]) -> String {
        let fields = Fields::own(message, counts);
        Line { time: SystemTime::now(), level, part: "freshet", fields: &fields }.text(self.format())
    }

    fn limit(&self) -> std::sync::MutexGuard<'_, Limit> {
        self.0.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When lines that were left out are to be reported next.
    fn next_suppressed(&self) -> Option<Instant> {
        self.limit().next()
    }

    /// Reports lines that were left out in intervals that are over.
    fn report_suppressed(&self) {
        self.report_suppressed_by((self.0.now)());
    }

    fn report_suppressed_by(&self, now: Instant) {
        let due = self.limit().due(now);
        for (metadata, count) in due {
            self.left_out(metadata, count);
        }
    }

    fn left_out(&self, metadata: &Metadata<'_>, count: u64) {
        let place = match (metadata.file(), metadata.line()) {
            (Some(file), Some(line)) => format!("{file}:{line}"),
            _ => metadata.target().to_owned(),
        };
        let mut fields = Fields::own("lines like one before were left out", &[("lines", count)]);
        fields.add("place", place);
        let line = Line {
            time: SystemTime::now(),
            level: *metadata.level(),
            part: line::part(metadata.target()),
            fields: &fields,
        };
        self.0.queue.push(line.text(self.format()));
    }
}

impl Subscriber for Messages {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let levels = self.0.levels.read().unwrap_or_else(PoisonError::into_inner);
        (metadata.is_event() || metadata.target() == STAGES)
            && *metadata.level() <= levels.of(line::part(metadata.target()))
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0.levels.read().unwrap_or_else(PoisonError::into_inner).most())
    }

    fn event(&self, event: &Event<'_>) {
        self.write(event.metadata(), Fields::of(event));
    }

    /// Of a stage ([`freshet_base::stage`]): they are entered when they are made, in the order of
    /// the calls.
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        STEPS.with_borrow_mut(|steps| steps.push((span.metadata(), Fields::of_step(span), Instant::now())));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {
        if let Some((metadata, mut fields, begun)) = STEPS.with_borrow_mut(Vec::pop) {
            fields.add("us", begun.elapsed().as_micros() as u64);
            self.write(metadata, fields);
        }
    }
}

impl Messages {
    /// A line, unless there were too many like it.
    fn write(&self, metadata: &'static Metadata<'static>, fields: Fields) {
        let admission = self.limit().admit(metadata, (self.0.now)());
        let before = match admission {
            Admission::No { first } => {
                if first {
                    // The thread that writes has to report this later, even if no message comes.
                    self.0.queue.wake();
                }
                return;
            }
            Admission::Yes { left_out } => left_out,
        };
        if before > 0 {
            self.left_out(metadata, before);
        }
        let part = line::part(metadata.target());
        let line = Line { time: SystemTime::now(), level: *metadata.level(), part, fields: &fields };
        self.0.queue.push(line.text(self.format()));
    }
}

#[cfg(test)]
mod tests;
