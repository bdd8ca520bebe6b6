//! Links from document to document.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

use crate::{
    rules::{Offence, offence},
    source::Source,
};

/// `link`: links whose file is not there, or has no such heading.
pub fn check(root: &Path, sources: &[Source], found: &mut Vec<Offence>) {
    let documents = || sources.iter().filter(|source| !source.is_rust());
    let headings: BTreeMap<&str, BTreeSet<String>> =
        documents().map(|source| (source.path.as_str(), headings(&source.text))).collect();
    for source in documents() {
        for (at, target) in targets(&source.text) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { source.path.clone() } else { joined(&source.path, file) };
            let is_there = root.join(&path).exists();
            let has_heading =
                heading.is_empty() || headings.get(path.as_str()).is_none_or(|known| known.contains(heading));
            if !is_there || !has_heading {
                found.push(offence("link", source, at, target.to_owned()));
            }
        }
    }
}

/// The targets of links within the project, with their places.
fn targets(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let target = |(at, open): (usize, &str)| {
        let start = at + open.len();
        let target = &text[start..start + text[start..].find(')')?];
        let is_ours = !target.contains("://") && !target.contains(char::is_whitespace) && !target.is_empty();
        is_ours.then_some((start, target))
    };
    text.match_indices("](").filter_map(target)
}

/// The names by which links find the headings of a document, as forges make them.
fn headings(text: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        title.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c)).collect::<String>().replace(' ', "-")
    };
    text.lines().filter(|line| line.starts_with('#')).map(name).collect()
}

/// The path of `file` as a document at `from` names it.
fn joined(from: &str, file: &str) -> String {
    let mut path = Path::new(from).parent().map(Path::to_owned).unwrap_or_default();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            other => path.push(PathBuf::from(other.as_os_str())),
        }
    }
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_nothing_are_found() {
        let a = "# One: `two`\n[a](#one-two) [b](../Cargo.toml) [c](https://x.y/#z)\n\
                 [d](testing.md#no)\n[e](#no) [f](no.md)";
        let sources = [("docs/sql.md", a), ("docs/testing.md", "## Other\n")];
        let mut found = Vec::new();
        check(&crate::source::root(), &sources.map(|(path, text)| Source::new(path, text.to_owned())), &mut found);
        let found: Vec<_> = found.iter().map(|it| (it.at.as_str(), it.what.as_str())).collect();
        assert_eq!(found, [("docs/sql.md:3", "testing.md#no"), ("docs/sql.md:4", "#no"), ("docs/sql.md:4", "no.md")]);
    }
}
