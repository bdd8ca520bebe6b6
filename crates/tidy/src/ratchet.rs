//! What is left from before the rules.
//!
//! Most rules count offences by crate. A function or file that is too long has a line of its own,
//! with its size.

use std::{collections::BTreeMap, fmt::Write, fs, io, path::Path};

use crate::rules::Offence;

/// Where the numbers are, below the root.
const FILE: &str = "crates/tidy/ratchet.txt";
const HEAD: &str =
    "# What is left from before the rules: rule, place, how often. No number may rise; `./test --fix` lowers them.\n";

/// How many offences a message lists.
const SHOWN: usize = 20;

/// How often each rule is offended, by place; or how long what is too long there is.
pub type Counts = BTreeMap<(String, String), usize>;

/// Counts offences.
pub fn counts(offences: &[Offence]) -> Counts {
    let mut counts = Counts::new();
    for offence in offences {
        *counts.entry((offence.rule.to_owned(), offence.place.clone())).or_default() += offence.weight;
    }
    counts
}

/// The numbers of the file; empty when there is no such file. A merge keeps the lines of both sides
/// (`.gitattributes`): the largest number counts until `--fix` puts that right.
///
/// # Errors
/// When it cannot be read, or has a line that is not made of a rule, a place and a number.
pub fn read(root: &Path) -> io::Result<Counts> {
    let text = match fs::read_to_string(root.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    let entry = |line: &str| {
        let (rule, rest) = line.split_once(' ')?;
        let (place, count) = rest.rsplit_once(' ')?;
        Some(((rule.to_owned(), place.to_owned()), count.parse::<usize>().ok()?))
    };
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let bad = |line| io::Error::other(format!("{FILE}: {line:?} is not a rule, a place and a number"));
    let mut counts = Counts::new();
    for line in lines {
        let (key, count) = entry(line).ok_or_else(|| bad(line))?;
        let known = counts.entry(key).or_default();
        *known = count.max(*known);
    }
    Ok(counts)
}

/// Writes the smaller of both numbers everywhere. What is too long and has moved takes its line
/// along.
///
/// # Errors
/// When the file cannot be written.
pub fn lower(root: &Path, known: &Counts, now: &Counts) -> io::Result<()> {
    let mut text = HEAD.to_owned();
    for ((rule, place), count) in lowered(known, now) {
        let _ = writeln!(text, "{rule} {place} {count}");
    }
    fs::write(root.join(FILE), text)
}

fn lowered(known: &Counts, now: &Counts) -> Counts {
    let mut lowered = Counts::new();
    for (key, count) in known {
        if let Some(is) = now.get(key) {
            lowered.insert(key.clone(), *is.min(count));
        } else if let Some((key, is)) = moved(key, *count, known, now).find(|(key, _)| !lowered.contains_key(*key)) {
            lowered.insert(key.clone(), is);
        }
    }
    lowered
}

/// Where that may be now which was too long and is not there any more: under the same name, no
/// longer than it was, and not known there.
fn moved<'c>(
    (rule, place): &'c (String, String),
    was: usize,
    known: &'c Counts,
    now: &'c Counts,
) -> impl Iterator<Item = (&'c (String, String), usize)> {
    // All folders have a `mod.rs`.
    let name = |place: &'c str| {
        let name = place.trim_end_matches("/mod.rs").rsplit(['/', ' ']).next().unwrap_or(place);
        (name, place.ends_with("/mod.rs"))
    };
    let is_it = move |(key, is): &(&'c (String, String), &usize)| {
        rule.starts_with("long-") && key.0 == *rule && name(&key.1) == name(place) && **is <= was
    };
    now.iter().filter(|(key, _)| !known.contains_key(*key)).filter(is_it).map(|(key, is)| (key, *is))
}

/// What is wrong: one message for each number that has risen, with what is counted there, and for
/// each that has fallen and is not lowered.
pub fn compare(known: &Counts, now: &Counts, offences: &[Offence]) -> Vec<String> {
    let mut wrong = Vec::new();
    let keys: std::collections::BTreeSet<_> = known.keys().chain(now.keys()).collect();
    for key in keys {
        let (was, is) = (known.get(key).copied().unwrap_or(0), now.get(key).copied().unwrap_or(0));
        let (rule, place) = key;
        if is < was {
            wrong.push(format!("{rule} {place}: {was} -> {is}. Good! ./test --fix lowers the number in {FILE}"));
        } else if is > was {
            let of = offences.iter().filter(|offence| offence.rule == rule && offence.place == *place);
            let shown = of.take(SHOWN).map(|offence| format!("\n    {}: {}", offence.at, offence.what));
            let more = if is > SHOWN { "\n    ... cargo run -p freshet-tidy shows all" } else { "" };
            wrong.push(format!("{rule} {place}: {was} -> {is}. Among these:{}{more}", shown.collect::<String>()));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offence(rule: &'static str, place: &str, weight: usize) -> Offence {
        Offence { rule, place: place.into(), at: "x.rs:1".into(), what: "y".into(), weight }
    }

    #[test]
    fn what_is_too_long_may_shrink_and_move_and_not_grow() {
        let of = |list: &[(&'static str, &str, usize)]| {
            let offences: Vec<_> = list.iter().map(|&(rule, place, size)| offence(rule, place, size)).collect();
            (counts(&offences), offences)
        };
        let (known, _) = of(&[
            ("long-function", "a.rs T::grows", 70),
            ("long-function", "a.rs T::moves", 80),
            ("long-function", "a.rs T::moves_and_grows", 80),
            ("long-function", "a.rs T::shrinks", 90),
            ("long-function", "a.rs is_short_now", 61),
            ("long-file", "src/a.rs", 700),
            ("long-file", "src/b/mod.rs", 700),
            ("long-file", "src/c/mod.rs", 700),
            ("word", "a of which", 2),
        ]);
        let (now, offences) = of(&[
            ("long-function", "a.rs T::grows", 71),
            ("long-function", "b.rs T::moves", 79),
            ("long-function", "b.rs T::moves_and_grows", 81),
            ("long-function", "a.rs T::shrinks", 85),
            ("long-function", "a.rs new", 61),
            ("long-file", "src/b/a.rs", 650),
            ("long-file", "src/d/b/mod.rs", 650),
            ("long-file", "src/d/mod.rs", 650),
            ("word", "b of which", 1),
        ]);
        let (fixed, _) = of(&[
            ("long-function", "a.rs T::grows", 70),
            ("long-function", "b.rs T::moves", 79),
            ("long-function", "a.rs T::shrinks", 85),
            ("long-file", "src/b/a.rs", 650),
            ("long-file", "src/d/b/mod.rs", 650),
        ]);
        assert_eq!(lowered(&known, &now), fixed);
        // Before it is fixed, what is no longer needed is refused, too.
        assert!(compare(&known, &now, &offences).iter().any(|it| it.contains("is_short_now: 61 -> 0")));
        let wrong = compare(&fixed, &now, &offences).join("\n");
        assert_eq!(wrong.matches("long-function").count(), 3, "{wrong}");
        assert!(wrong.contains("a.rs T::grows: 70 -> 71") && wrong.contains("a.rs new: 0 -> 61"), "{wrong}");
        assert!(wrong.contains("b.rs T::moves_and_grows: 0 -> 81"), "{wrong}");
    }

    #[test]
    fn numbers_may_fall_and_not_rise() {
        let offence = |rule, place: &str| offence(rule, place, 1);
        let offences = [offence("a", "one"), offence("a", "one"), offence("b", "two words")];
        let now = counts(&offences);
        assert_eq!(compare(&now, &now, &offences), Vec::<String>::new());
        let known =
            |one, two| Counts::from([(("a".into(), "one".into()), one), (("b".into(), "two words".into()), two)]);
        assert_eq!(compare(&known(1, 1), &now, &offences).len(), 1);
        assert!(compare(&known(2, 3), &now, &offences)[0].contains("3 -> 1. Good!"));
        assert!(compare(&Counts::new(), &now, &offences)[0].contains("x.rs:1: y"));
        assert_eq!(compare(&now, &Counts::new(), &[]).len(), 2);
    }
}
