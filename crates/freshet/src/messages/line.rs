//! A message as a line of text or JSON.

use std::{
    fmt::{self, Write},
    time::SystemTime,
};

use serde_json::Value;
use tracing::{
    Event, Level,
    field::{Field, Visit},
    span::Attributes,
};

use super::{Format, levels};

/// The part of the program that `target` names.
pub(super) fn part(target: &str) -> &str {
    let crate_name = target.split("::").next().unwrap_or(target);
    crate_name.strip_prefix("freshet_").unwrap_or(crate_name)
}

/// The sentence and the fields.
#[derive(Debug, Default)]
pub(super) struct Fields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    pub(super) fn of(event: &Event<'_>) -> Self {
        let mut fields = Self::default();
        event.record(&mut fields);
        fields
    }

    /// Those of a step: its stage is the sentence.
    pub(super) fn of_step(span: &Attributes<'_>) -> Self {
        let mut fields = Self::own(span.metadata().name(), &[]);
        span.record(&mut fields);
        fields
    }

    pub(super) fn own(message: &str, counts: &[(&'static str, u64)]) -> Self {
        let others = counts.iter().map(|(name, count)| (*name, (*count).into())).collect();
        Self { message: message.to_owned(), others }
    }

    pub(super) fn add(&mut self, name: &'static str, value: impl Into<Value>) {
        self.others.push((name, value.into()));
    }

    fn put(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => self.others.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }
}

pub(super) struct Line<'l> {
    pub(super) time: SystemTime,
    pub(super) level: Level,
    pub(super) part: &'l str,
    pub(super) fields: &'l Fields,
}

impl Line<'_> {
    /// The line with its end. Text that a client has chosen cannot end it earlier.
    pub(super) fn text(&self, format: Format) -> String {
        let time = humantime::format_rfc3339_millis(self.time);
        let (level, part, fields) = (levels::name(self.level), self.part, self.fields);
        let mut line = String::new();
        match format {
            Format::Text => {
                // A String takes everything.
                let _ = write!(line, "{time} {:<5} {part}: ", level.to_uppercase());
                line.push_str(&plain(&fields.message));
                for (name, value) in &fields.others {
                    let _ = match value {
                        Value::String(text) if is_word(text) => write!(line, " {name}={text}"),
                        value => write!(line, " {name}={value}"),
                    };
                }
            }
            Format::Json => {
                let message = Value::from(fields.message.as_str());
                let _ = write!(line, r#"{{"time":"{time}","level":"{level}","part":"{part}","message":{message}"#);
                for (name, value) in &fields.others {
                    let _ = write!(line, ",{}:{value}", Value::from(*name));
                }
                line.push('}');
            }
        }
        line.push('\n');
        line
    }
}

/// Whether a value can stand without quotes.
fn is_word(text: &str) -> bool {
    !text.is_empty()
        && !text.contains(|char: char| char.is_whitespace() || char.is_control() || "\"'=\\".contains(char))
}

/// Without characters that end a line or control a terminal.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() { plain.extend(char.escape_default()) } else { plain.push(char) }
    }
    plain
}
