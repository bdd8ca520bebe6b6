//! What offends each rule.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    path::Path,
};

use crate::{
    links,
    names::NoPart,
    paths,
    source::{self, Source, closing, words},
};

/// Columns of comments and documents.
pub const COMMENT_WIDTH: usize = 100;
/// Columns of code: rustfmt's `max_width`.
const CODE_WIDTH: usize = 120;
/// Lines of a function.
const FUNCTION_LINES: usize = 60;
/// Lines of a file.
const FILE_LINES: usize = 600;

/// Something that offends a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offence {
    /// The rule.
    pub rule: &'static str,
    /// What it is counted under: the crate, the folder, or the item that is too long.
    pub place: String,
    /// Where it is: file and line.
    pub at: String,
    /// What it is.
    pub what: String,
    /// What it adds to the number of its place: 1, or how many lines a long item has.
    pub weight: usize,
}

/// All offences.
///
/// # Panics
/// When a file of rules cannot be read.
pub fn check(root: &Path, sources: &[Source]) -> Vec<Offence> {
    let rules = |name: &str| {
        let text = fs::read_to_string(root.join("crates/tidy").join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let line = |line: &str| line.split('#').next().unwrap_or_default().trim().to_owned();
        text.lines().map(line).filter(|line| !line.is_empty()).collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    let forbidden: Vec<Forbidden> = rules("words.txt").iter().map(|line| Forbidden::read(line)).collect();
    let no_parts: Vec<NoPart> = rules("names.txt").iter().map(|line| NoPart::read(line)).collect();
    for source in sources {
        widths(source, &mut found);
        long_files(source, &mut found);
        functions(source, &mut found);
        allows(source, &mut found);
        system_math(source, &mut found);
        waits(source, &mut found);
        forbidden.iter().for_each(|forbidden| forbidden.find(source, &mut found));
        let names = no_parts.iter().flat_map(|no_part| no_part.find(source));
        found.extend(names.map(|(at, what)| offence("name", source, at, what)));
    }
    unused(sources, &mut found);
    links::check(root, sources, &mut found);
    paths::check(&source::files(root), sources, &mut found);
    arrows(root, &rules("arrows.txt"), &mut found);
    unsafe_code(sources, &mut found);
    found.sort();
    found
}

/// An offence that counts once under its crate or folder.
pub(crate) fn offence(rule: &'static str, source: &Source, at: usize, what: String) -> Offence {
    let place = source.place().to_owned();
    Offence { rule, place, at: format!("{}:{}", source.path, source.line(at)), what, weight: 1 }
}

/// An item of so many lines: it has a place of its own.
fn too_long(rule: &'static str, source: &Source, at: usize, place: String, count: usize) -> Offence {
    Offence { place, weight: count, ..offence(rule, source, at, format!("{count} lines")) }
}

/// Lines of a text with their places.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_inclusive('\n').scan(0, |at, line| {
        let from = *at;
        *at += line.len();
        Some((from, line.trim_end()))
    })
}

/// `wide-comment`, `wide-code`: lines that are too long. Tables, code in documents, and links that
/// cannot be broken may be.
fn widths(source: &Source, found: &mut Vec<Offence>) {
    let mut fenced = false;
    for (at, line) in lines(&source.text) {
        let columns = line.chars().count();
        let shown = source.comments[at..at + line.len()].trim();
        let is_comment = !source.is_rust() || line.trim_start() == shown && shown.starts_with("//");
        let text = shown.trim_start_matches(['/', '!']).trim_start();
        fenced ^= is_comment && text.starts_with("```");
        let may_be_wide =
            fenced || text.starts_with('|') || !text.contains(' ') || line.starts_with("    ") && !source.is_rust();
        if is_comment && columns > COMMENT_WIDTH && !may_be_wide {
            found.push(offence("wide-comment", source, at, format!("{columns} columns")));
        } else if !is_comment && columns > CODE_WIDTH {
            found.push(offence("wide-code", source, at, format!("{columns} columns")));
        }
    }
}

/// `long-file`: files of more than [`FILE_LINES`] lines.
fn long_files(source: &Source, found: &mut Vec<Offence>) {
    let count = source.text.lines().count();
    if source.is_rust() && count > FILE_LINES {
        found.push(too_long("long-file", source, 0, source.path.clone(), count));
    }
}

/// `long-function`: functions outside of tests of more than [`FUNCTION_LINES`] lines.
fn functions(source: &Source, found: &mut Vec<Offence>) {
    for (at, name) in definitions(&source.code, &["fn"]) {
        if source.is_test(at) {
            continue;
        }
        let mut place = at;
        let open = loop {
            match source.code.as_bytes().get(place) {
                Some(b'(' | b'[') => place = closing(&source.code, place).unwrap_or(source.code.len()),
                Some(b'{') => break Some(place),
                Some(b';') | None => break None,
                Some(_) => place += 1,
            }
        };
        let Some(end) = open.and_then(|open| closing(&source.code, open)) else { continue };
        let count = source.code[at..end].matches('\n').count() + 1;
        if count > FUNCTION_LINES {
            let owner = owner(&source.code, at).map(|owner| format!("{owner}::")).unwrap_or_default();
            let place = format!("{} {owner}{name}", source.path);
            found.push(too_long("long-function", source, at, place, count));
        }
    }
}

/// The type or trait to which a function belongs.
fn owner(code: &str, function: usize) -> Option<&str> {
    let is_around = |(at, word): &(usize, &str)| {
        let line = code[..*at].rfind('\n').map_or(0, |end| end + 1);
        let is_first = matches!(code[line..*at].trim(), "" | "unsafe" | "pub" | "pub(crate)" | "pub(super)");
        let body = || code[*at..].find('{').map(|length| at + length);
        is_first
            && matches!(*word, "impl" | "trait")
            && body().is_some_and(|open| open < function && closing(code, open).is_some_and(|end| function < end))
    };
    let (at, _) = words(&code[..function]).filter(is_around).last()?;
    let head = &code[at..at + code[at..].find('{')?];
    let head = head.split_once(" for ").map_or(head, |(_, owner)| owner);
    let is_open = |before: &str| before.matches('<').count() > before.replace("->", "").matches('>').count();
    words(head).find(|(at, word)| word.starts_with(char::is_uppercase) && !is_open(&head[..*at])).map(|(_, word)| word)
}

/// `allow`: lints that are allowed without a reason.
fn allows(source: &Source, found: &mut Vec<Offence>) {
    for (at, _) in source.code.match_indices("[allow(") {
        let end = closing(&source.code, at).unwrap_or(source.code.len());
        if !source.code[at..end].contains("reason") {
            found.push(offence("allow", source, at, source.text[at..end].to_owned()));
        }
    }
}

/// Names that are defined by one of these keywords, with their places.
fn definitions<'c>(code: &'c str, keywords: &[&str]) -> Vec<(usize, &'c str)> {
    let all: Vec<(usize, &str)> = words(code).collect();
    let named = all.windows(2).filter(|pair| {
        let between = &code[pair[0].0 + pair[0].1.len()..pair[1].0];
        keywords.contains(&pair[0].1) && between.chars().all(char::is_whitespace)
    });
    named.map(|pair| pair[1]).collect()
}

/// A word that there is another one for.
struct Forbidden {
    words: Vec<String>,
    /// Only in these crates; everywhere when there are none.
    places: Vec<String>,
}

impl Forbidden {
    /// `the words [in some crates] -> what to say instead`
    fn read(line: &str) -> Self {
        let (words, places) = line.split("->").next().unwrap_or(line).split_once('[').unwrap_or((line, ""));
        let words = words.split("->").next().unwrap_or_default();
        let list = |text: &str| text.split([' ', ',', ']']).filter(|it| !it.is_empty()).map(str::to_owned).collect();
        Self { words: list(words), places: list(places.split(']').next().unwrap_or_default()) }
    }

    fn find(&self, source: &Source, found: &mut Vec<Offence>) {
        let here = self.places.is_empty() || self.places.iter().any(|place| place == source.place());
        if !here || source.path.starts_with("crates/tidy/") {
            return;
        }
        let text = source.text.to_ascii_lowercase();
        let first = self.words[0].as_str();
        for (at, _) in text.match_indices(first) {
            let starts = text[..at].chars().next_back().is_none_or(|before| !before.is_alphabetic());
            if starts && self.rest_follows(&text[at + first.len()..]) {
                let what = self.words.join(" ");
                let place = format!("{} {what}", source.place());
                found.push(Offence { place, ..offence("word", source, at, what) });
            }
        }
    }

    /// Whether the other words follow, with nothing between them but blanks and the signs of
    /// comments.
    fn rest_follows(&self, mut text: &str) -> bool {
        for word in &self.words[1..] {
            let next = text.trim_start_matches([' ', '\n', '/', '!', '_']);
            if next.len() == text.len() {
                return false;
            }
            let Some(rest) = next.strip_prefix(word.as_str()) else { return false };
            text = rest;
        }
        text.chars().next().is_none_or(|after| !after.is_alphabetic())
    }
}

/// `system-math`: functions of the standard library that are the system's, where what comes out
/// must be the same on every machine.
fn system_math(source: &Source, found: &mut Vec<Offence>) {
    const PLACES: [&str; 3] = ["sql", "query", "general"];
    const OF_TWO: [&str; 4] = ["atan2", "hypot", "powf", "powi"];
    /// Other types have a `log`, which takes a base.
    const OF_ONE: [&str; 22] = [
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "cos", "cosh", "exp", "exp2", "exp_m1", "ln",
        "ln_1p", "log", "log10", "log2", "sin", "sin_cos", "sinh", "tan", "tanh",
    ];
    if !source.is_rust() || !PLACES.contains(&source.place()) {
        return;
    }
    // So `.log()` is a getter.
    let of_one = OF_ONE.iter().filter(|name| **name != "log");
    let calls = of_one.map(|name| format!(".{name}()")).chain(OF_TWO.iter().map(|name| format!(".{name}(")));
    let names = OF_ONE.iter().chain(&OF_TWO).flat_map(|name| ["f64", "f32"].map(|kind| format!("{kind}::{name}")));
    for what in calls.chain(names) {
        for (at, _) in source.code.match_indices(&what) {
            let after = source.code[at + what.len()..].chars().next();
            let longer = !what.contains('(') && after.is_some_and(|after| after.is_alphanumeric() || after == '_');
            if !longer && !source.is_test(at) {
                found.push(offence("system-math", source, at, what.clone()));
            }
        }
    }
}

/// `wait`: where a thread of the product is parked otherwise than by `freshet_base::wait`. Sessions
/// and workers wait there only; what is left are background threads and commands.
fn waits(source: &Source, found: &mut Vec<Offence>) {
    const FACADE: [&str; 2] = ["crates/base/src/wait.rs", "crates/base/src/sync.rs"];
    const MEASURING: [&str; 4] = ["lab", "platform", "sim", "tidy"];
    let may = FACADE.contains(&source.path.as_str()) || MEASURING.contains(&source.place());
    if !source.is_rust() || !source.path.starts_with("crates/") || may {
        return;
    }
    for what in [": Condvar", "thread::sleep", "thread::park", ".unpark"] {
        let places = source.code.match_indices(what).filter(|(at, _)| !source.is_test(*at));
        found.extend(places.map(|(at, _)| offence("wait", source, at, what.to_owned())));
    }
}

/// `unused`: public items that nothing but tests names.
fn unused(sources: &[Source], found: &mut Vec<Offence>) {
    // Traits are used by importing them.
    const KEYWORDS: [&str; 7] = ["fn", "struct", "enum", "type", "const", "static", "union"];
    let mut used: HashSet<&str> = HashSet::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        let defined: HashSet<usize> = definitions(&source.code, &KEYWORDS).into_iter().map(|(at, _)| at).collect();
        let passed = passed_over(&source.code);
        let mut passed = passed.iter().peekable();
        for (at, word) in words(&source.code) {
            while passed.next_if(|range| range.end <= at).is_some() {}
            if !passed.peek().is_some_and(|range| range.contains(&at)) && !defined.contains(&at) && !source.is_test(at)
            {
                used.insert(word);
            }
        }
        // What a format string names in braces.
        let named = words(&source.strings).filter(|(at, _)| source.strings[..*at].ends_with('{'));
        used.extend(named.filter(|(at, _)| !source.is_test(*at)).map(|(_, word)| word));
    }
    for source in sources.iter().filter(|source| source.is_rust() && source.path.contains("/src/")) {
        for (at, name) in definitions(&source.code, &KEYWORDS) {
            if is_public(&source.code, at) && !source.is_test(at) && !used.contains(name) {
                found.push(offence("unused", source, at, name.to_owned()));
            }
        }
    }
}

/// Where a name is no use of what it names: imports, and the heads of implementations.
fn passed_over(code: &str) -> Vec<std::ops::Range<usize>> {
    let of = |(at, word): (usize, &str)| {
        let line = code[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = code[line..at].trim();
        let first = before.is_empty() || before.starts_with("pub");
        let end = match word {
            "use" if first => code[at..].find(';'),
            "impl" if before.is_empty() || before == "unsafe" => code[at..].find('{'),
            _ => None,
        };
        end.map(|length| at..at + length)
    };
    words(code).filter_map(of).collect()
}

/// Whether a name's definition says `pub`, and nothing that makes it less.
fn is_public(code: &str, name: usize) -> bool {
    let line = code[..name].rfind('\n').map_or(0, |end| end + 1);
    let head = code[line..name].trim_start();
    head.starts_with("pub ")
}

/// `arrow`: dependencies between crates that are not as `arrows.txt` says.
fn arrows(root: &Path, allowed: &[String], found: &mut Vec<Offence>) {
    let set = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let allowed: BTreeMap<&str, Vec<String>> =
        allowed.iter().filter_map(|line| line.split_once(':')).map(|(from, to)| (from.trim(), set(to))).collect();
    let mut offend = |from: &str, what: String| {
        let at = format!("crates/{from}/Cargo.toml");
        found.push(Offence { rule: "arrow", place: from.to_owned(), at, what, weight: 1 });
    };
    let folders = fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let mut crates: Vec<String> = folders.map(|folder| folder.file_name().to_string_lossy().into_owned()).collect();
    crates.sort();
    for from in &crates {
        let Ok(manifest) = fs::read_to_string(root.join("crates").join(from).join("Cargo.toml")) else { continue };
        let there = dependencies(&manifest);
        let Some(may) = allowed.get(from.as_str()) else {
            offend(from, "is not in arrows.txt".to_owned());
            continue;
        };
        for to in there.iter().filter(|to| !may.contains(to)) {
            offend(from, format!("depends on {to}"));
        }
        for to in may.iter().filter(|to| !there.contains(to)) {
            offend(from, format!("does not depend on {to}, as arrows.txt has it"));
        }
    }
    for from in allowed.keys().filter(|from| !crates.iter().any(|known| known == *from)) {
        offend(from, "is in arrows.txt, and not in crates".to_owned());
    }
}

/// The crates of the project on which one depends, but not those that only its tests need.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section.ends_with("dependencies]")
            && !section.contains("dev-")
            && let Some(name) = line.split(['.', ' ', '=']).next().filter(|name| name.starts_with("freshet"))
        {
            found.push(name.strip_prefix("freshet-").unwrap_or(name).to_owned());
        }
    }
    found
}

/// `unsafe`: crates that do not forbid it, but for those that may have it.
fn unsafe_code(sources: &[Source], found: &mut Vec<Offence>) {
    const MAY: [&str; 5] = ["storage", "memory", "log", "fabric", "allocator"];
    for source in sources.iter().filter(|source| source.path.ends_with("/src/lib.rs")) {
        if !MAY.contains(&source.place()) && !source.code.contains("#![forbid(unsafe_code)]") {
            found.push(offence("unsafe", source, 0, "does not forbid unsafe code".to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(path: &str, text: &str) -> Source {
        Source::new(path, text.to_owned())
    }

    fn offences(find: impl Fn(&mut Vec<Offence>)) -> Vec<String> {
        let mut found = Vec::new();
        find(&mut found);
        found.into_iter().map(|it| format!("{} {} {}", it.rule, it.at, it.what)).collect()
    }

    #[test]
    fn wide_lines_are_found() {
        let long = "word ".repeat(24);
        let text = format!("// {long}\n    /// | {long}\nlet x = \"{long}{long}\";\n// x{}\n", "-".repeat(130));
        assert_eq!(
            offences(|found| widths(&rust("crates/a/src/b.rs", &text), found)),
            ["wide-comment crates/a/src/b.rs:1 122 columns", "wide-code crates/a/src/b.rs:3 251 columns"]
        );
        let text = format!("{long}\n\n    {long}\n```\n{long}\n```\n{long}");
        let at: Vec<_> = offences(|found| widths(&rust("docs/a.md", &text), found));
        assert_eq!(at, ["wide-comment docs/a.md:1 119 columns", "wide-comment docs/a.md:7 119 columns"]);
    }

    #[test]
    fn long_functions_are_found() {
        let body = "    a();\n".repeat(FUNCTION_LINES - 2);
        let text = format!(
            "fn short() {{\n{body}}}\nfn long(x: [u8; 3]) -> bool {{\n    \"}}\";\n{body}}}\n\
             impl<T: Into<U>> From<T> for c::Own<T> {{\nfn from() {{\n\n{body}}}\n}}\n\
             #[cfg(test)]\nmod tests {{\nfn test() {{\n\n\n{body}}}\n}}\n"
        );
        let mut found = Vec::new();
        functions(&rust("crates/a/src/b.rs", &text), &mut found);
        let found: Vec<_> = found.iter().map(|it| (it.at.as_str(), it.place.as_str(), it.weight)).collect();
        let expected = [
            ("crates/a/src/b.rs:61", "crates/a/src/b.rs long", FUNCTION_LINES + 1),
            ("crates/a/src/b.rs:123", "crates/a/src/b.rs Own::from", FUNCTION_LINES + 1),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn forbidden_words_are_found() {
        let text = "/// There is\n/// none. fn there_is_none_left() thereisnone; leader Leaders follow_leader";
        let line = "there is none -> say what is the case";
        let in_some = "leader [a, b] -> primary";
        let all = |line: &str, path| offences(|found| Forbidden::read(line).find(&rust(path, text), found));
        assert_eq!(all(line, "x.rs"), ["word x.rs:1 there is none", "word x.rs:2 there is none"]);
        assert_eq!(all(in_some, "crates/b/src/x.rs").len(), 2);
        assert_eq!(all(in_some, "crates/c/src/x.rs"), Vec::<String>::new());
    }

    #[test]
    fn the_systems_functions_are_found() {
        let text = "fn f() { x.exp(); node.log(); f64::log(x, y); x.powi(2); numeric.log(base, check); f64::exp_off }";
        let found = |path| offences(|found| system_math(&rust(path, text), found));
        let expected = [".exp()", ".powi(", "f64::log"].map(|it| format!("system-math crates/sql/src/a.rs:1 {it}"));
        assert_eq!(found("crates/sql/src/a.rs"), expected);
        assert_eq!(found("crates/log/src/a.rs"), Vec::<String>::new());
    }

    #[test]
    fn threads_that_are_parked_are_found() {
        let text = "use x::{Condvar}; // thread::sleep(\nfn f(it: Condvar) { thread::sleep(x); it.unpark() }\n\
                    #[cfg(test)]\nmod tests { fn t() { std::thread::park() } }";
        let found = |path| offences(|found| waits(&rust(path, text), found));
        let expected = [": Condvar", "thread::sleep", ".unpark"].map(|it| format!("wait crates/log/src/a.rs:2 {it}"));
        assert_eq!(found("crates/log/src/a.rs"), expected);
        for path in ["crates/base/src/wait.rs", "crates/lab/src/a.rs", "crates/log/tests/a.rs"] {
            assert_eq!(found(path), Vec::<String>::new());
        }
    }

    #[test]
    fn unused_items_are_found() {
        let a = "use b::{dead, Dead};\npub fn dead() {}\npub fn used() {}\npub struct Dead;\nimpl Dead {}\n\
                 pub(crate) fn ours() {}\nfn private() { used() }\n\
                 #[cfg(test)]\nmod tests { fn t() { dead(); only_tests() } }\npub fn only_tests() {}\n\
                 pub const SHOWN: u8 = 1;\nfn shows() { format!(\"{SHOWN}\") }";
        let b = "pub use a::only_tests;\nfn f(_: Other) { other() }\npub struct Other;\npub fn other() {}";
        let found = offences(|found| unused(&[rust("crates/a/src/lib.rs", a), rust("crates/b/src/lib.rs", b)], found));
        let expected = ["lib.rs:2 dead", "lib.rs:4 Dead", "lib.rs:10 only_tests"];
        assert_eq!(found, expected.map(|it| format!("unused crates/a/src/{it}")));
    }

    #[test]
    fn dependencies_are_read_from_manifests() {
        let manifest = "[dependencies]\nfreshet-base.workspace = true\nserde = \"1\"\nfreshet-log = { path = \"\" }\n\
             [dev-dependencies]\nfreshet-sql.workspace = true\n\
             [target.'cfg(x)'.dependencies]\nfreshet-txn.workspace = true\nfreshet.workspace = true\n";
        assert_eq!(dependencies(manifest), ["base", "log", "txn", "freshet"]);
    }
}
