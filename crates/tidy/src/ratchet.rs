//! What is left from before the rules.

use std::{collections::BTreeMap, fmt::Write, fs, io, path::Path};

use crate::rules::Offence;

/// Where the numbers are, below the root.
const FILE: &str = "crates/tidy/ratchet.txt";
const HEAD: &str =
    "# What is left from before the rules: rule, place, how often. No number may rise; `./test --fix` lowers them.\n";

/// How many offences a message lists.
const SHOWN: usize = 20;

/// How often each rule is offended, by place.
pub type Counts = BTreeMap<(String, String), usize>;

/// Counts offences.
pub fn counts(offences: &[Offence]) -> Counts {
    let mut counts = Counts::new();
    for offence in offences {
        *counts.entry((offence.rule.to_owned(), offence.place.clone())).or_default() += 1;
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

/// Writes the smaller of both numbers everywhere.
///
/// # Errors
/// When the file cannot be written.
pub fn lower(root: &Path, known: &Counts, now: &Counts) -> io::Result<()> {
    let mut text = HEAD.to_owned();
    for ((rule, place), count) in known {
        let count = *count.min(now.get(&(rule.clone(), place.clone())).unwrap_or(&0));
        if count > 0 {
            let _ = writeln!(text, "{rule} {place} {count}");
        }
    }
    fs::write(root.join(FILE), text)
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

    #[test]
    fn numbers_may_fall_and_not_rise() {
        let offence = |rule, place: &str| Offence { rule, place: place.into(), at: "x.rs:1".into(), what: "y".into() };
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
