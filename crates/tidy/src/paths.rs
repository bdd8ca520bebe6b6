//! Files and items of Rust that documents name in back-ticks.
//!
//! A path may leave out its beginning: it is found when it is a whole number of components at the
//! end of some file's path, or a folder on the way to one. Braces stand for each of their parts.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::{
    rules::{Offence, offence},
    source::{Source, words},
};

/// The folders of a crate that have paths of their own in documents.
const IN_A_CRATE: [&str; 5] = ["src", "tests", "benches", "examples", "corpus"];
/// Folders of the project, besides crates.
const AT_THE_ROOT: [&str; 5] = ["crates", "docs", "tests", "fuzz", "bench-compare"];

/// `path`: paths in documents where no file is. `name`: types and functions that ARCHITECTURE.md
/// names, and no code has.
pub fn check(files: &BTreeSet<String>, sources: &[Source], found: &mut Vec<Offence>) {
    let known = Known::new(files);
    let items = Items::new(sources);
    let is_checked = |path: &str| {
        path.ends_with(".md") && (!path.contains('/') || path.strip_prefix("docs/").is_some_and(|it| !it.contains('/')))
    };
    for source in sources.iter().filter(|source| is_checked(&source.path)) {
        for (at, span) in spans(&source.text) {
            for path in expanded(span).iter().filter(|path| is_path(path) && !known.has(path)) {
                found.push(offence("path", source, at, path.clone()));
            }
            if source.path == "ARCHITECTURE.md" && is_item(span) && !items.has(span) {
                found.push(offence("name", source, at, span.to_owned()));
            }
        }
        for (at, name) in items.misplaced(source) {
            found.push(offence("name", source, at, name));
        }
    }
}

/// What is in back-ticks within a document's lines, but not in its blocks of code.
fn spans(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let (mut at, mut fenced) = (0, false);
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        if !fenced && !is_fence && !line.starts_with("    ") {
            found.extend(line_spans(line).into_iter().map(|(within, span)| (at + within, span)));
        }
        at += line.len();
    }
    found
}

fn line_spans(line: &str) -> Vec<(usize, &str)> {
    let ticks: Vec<usize> = line.match_indices('`').map(|(at, _)| at).collect();
    ticks.chunks_exact(2).map(|pair| (pair[0] + 1, &line[pair[0] + 1..pair[1]])).collect()
}

/// A path for each part between braces.
fn expanded(span: &str) -> Vec<String> {
    let parts = span.split_once('{').and_then(|(before, rest)| {
        let (parts, after) = rest.split_once('}')?;
        Some((before, parts, after))
    });
    let Some((before, parts, after)) = parts else { return vec![span.to_owned()] };
    parts.split(',').flat_map(|part| expanded(&format!("{before}{}{after}", part.trim()))).collect()
}

/// Whether something in back-ticks is meant to be a file or folder of the project.
fn is_path(text: &str) -> bool {
    let is_plain = text.chars().all(|it| it.is_ascii_alphanumeric() || "_-./".contains(it));
    let components: Vec<&str> = text.split('/').collect();
    let is_source = text.ends_with(".rs") && components.iter().all(|component| !component.is_empty());
    let is_below = match components[..] {
        [first, second, ..] => AT_THE_ROOT.contains(&first) || IN_A_CRATE.contains(&second),
        _ => false,
    };
    is_plain && (is_source && text != ".rs" || is_below && !text.starts_with('/'))
}

/// All ends of paths of files and folders.
struct Known<'f>(HashSet<&'f str>);

impl<'f> Known<'f> {
    fn new(files: &'f BTreeSet<String>) -> Self {
        let paths = files.iter().flat_map(|file| {
            let folders = file.match_indices('/').map(|(at, _)| &file[..at]);
            folders.chain([file.as_str()])
        });
        let distinct: HashSet<&str> = paths.collect();
        let ends = |path: &'f str| path.match_indices('/').map(|(at, _)| &path[at + 1..]).chain([path]);
        Self(distinct.into_iter().flat_map(ends).collect())
    }

    fn has(&self, path: &str) -> bool {
        self.0.contains(path.trim_end_matches('/'))
    }
}

/// Whether something in back-ticks is meant to be a type, or something that belongs to one.
fn is_item(span: &str) -> bool {
    let mut parts = span.split("::");
    let first = parts.next().unwrap_or_default();
    let is_identifier = |part: &str| {
        part.starts_with(|it: char| it.is_ascii_alphabetic())
            && part.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
    };
    let is_camel = first.starts_with(char::is_uppercase) && first.contains(char::is_lowercase);
    is_identifier(first) && parts.clone().all(is_identifier) && (is_camel || parts.next().is_some())
}

/// The identifiers of the code of all crates.
struct Items<'s> {
    all: HashSet<&'s str>,
    /// The names of the functions that each file defines.
    functions: HashMap<&'s str, HashSet<&'s str>>,
}

impl<'s> Items<'s> {
    fn new(sources: &'s [Source]) -> Self {
        let code = || sources.iter().filter(|it| it.is_rust() && !it.path.starts_with("crates/tidy/"));
        let functions = |source: &'s Source| {
            let all: Vec<&str> = words(&source.code).map(|(_, word)| word).collect();
            all.windows(2).filter(|pair| pair[0] == "fn").map(|pair| pair[1]).collect()
        };
        Self {
            all: code().flat_map(|source| words(&source.code).map(|(_, word)| word)).collect(),
            functions: code().map(|source| (source.path.as_str(), functions(source))).collect(),
        }
    }

    fn has(&self, item: &str) -> bool {
        item.split("::").all(|part| self.all.contains(part))
    }

    /// Functions of tables with the columns "functions" and "file" that neither the file of their
    /// row nor that of an earlier row defines. Those in parentheses may be anywhere.
    fn misplaced(&self, source: &Source) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        let mut placed: HashSet<String> = HashSet::new();
        let (mut at, mut columns) = (0, None);
        for line in source.text.split_inclusive('\n') {
            let from = at;
            at += line.len();
            let cells: Vec<&str> = line.trim().split('|').map(str::trim).collect();
            let column = |name| cells.iter().position(|cell| *cell == name);
            if !line.starts_with('|') {
                columns = None;
            } else if let (Some(functions), Some(file)) = (column("functions"), column("file")) {
                columns = Some((functions, file));
            } else if let Some((functions, file)) = columns
                && let Some(&[(_, path)]) = cells.get(file).map(|cell| line_spans(cell)).as_deref()
            {
                for (_, name) in line_spans(&without_parentheses(cells[functions])) {
                    if self.defines(path, name) {
                        placed.insert(name.to_owned());
                    } else if !placed.contains(name) {
                        found.push((from, name.to_owned()));
                    }
                }
            }
        }
        found
    }

    /// Whether the file at the end of whose path `path` is defines a function.
    fn defines(&self, path: &str, function: &str) -> bool {
        let name = function.rsplit("::").next().unwrap_or(function);
        let ends = |known: &str| known.strip_suffix(path).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
        self.functions.iter().any(|(known, names)| ends(known) && names.contains(name))
    }
}

fn without_parentheses(text: &str) -> String {
    let mut depth = 0_usize;
    let keep = |it: &char| {
        depth += usize::from(*it == '(');
        let kept = depth == 0;
        depth -= usize::from(*it == ')' && depth > 0);
        kept
    };
    text.chars().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences(document: &str, text: &str) -> Vec<String> {
        let code = "struct Own; impl Own { fn go() { leaf() } } enum E { Case }";
        let files = ["crates/a/src/b/c.rs", "crates/a/src/lib.rs", "tests/vm/pmem", document];
        let sources = [(document, text), ("crates/a/src/b/c.rs", code), ("crates/a/src/lib.rs", "fn leaf() {}")];
        let mut found = Vec::new();
        check(
            &files.map(str::to_owned).into(),
            &sources.map(|(path, text)| Source::new(path, text.to_owned())),
            &mut found,
        );
        found.into_iter().map(|it| format!("{} {} {}", it.rule, it.at, it.what)).collect()
    }

    #[test]
    fn paths_to_nothing_are_found() {
        let text = "`a/src/b/c.rs` `b/c.rs` `c.rs` `a/src/b` `crates/a` `tests/vm/pmem` `a/src/{b/c,lib}.rs`\n\
                    `1/2` `log/segment` `/tests/x` `.rs` `a b.rs` `http://x/src/y`\n\
                    \x20   `no.rs`\n```\n`no.rs`\n```\n\
                    `a/src/{b/c,d}.rs` `d.rs`\n`src/b/c` and `docs/no.md`\n";
        let expected = ["path docs/x.md:7 a/src/d.rs", "path docs/x.md:7 d.rs", "path docs/x.md:8 docs/no.md"];
        let found = offences("docs/x.md", text);
        assert_eq!(found, expected);
        assert_eq!(offences("docs/figures/x.md", "`d.rs`"), Vec::<String>::new());
    }

    #[test]
    fn items_that_no_code_has_are_found() {
        let text = "`Own` `Own::go` `E::Case` `LSN` `two words` `leaf` `Owned` `Own::went` `own::go`";
        let found = offences("ARCHITECTURE.md", text);
        let expected = ["Owned", "Own::went", "own::go"];
        assert_eq!(found, expected.map(|it| format!("name ARCHITECTURE.md:1 {it}")));
        assert_eq!(offences("README.md", text), Vec::<String>::new());
    }

    #[test]
    fn functions_that_a_file_does_not_define_are_found() {
        let table = "| stage | functions | file |\n|---|---|---|\n\
                     | a | `Own::go` (`leaf`, `Own`) | `b/c.rs` |\n\
                     | b | `go`, and `Own::go` again | `a/src/lib.rs` |\n\n\
                     | c | `gone` | `a/src/lib.rs` |\n";
        assert_eq!(offences("docs/x.md", table), ["name docs/x.md:4 go"]);
    }
}
