//! The files of the project.

use std::{
    collections::BTreeSet,
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
};

/// Folders that are not the project's own text.
const OUTSIDE: [&str; 5] = ["target", ".git", "corpus", "node_modules", "papers"];

/// The root of the project.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/tidy is two levels down").to_owned()
}

/// A file with its kinds of text distinguished. In `code`, `comments` and `strings` all that
/// belongs to another of them is blank, so that places are the same in all.
#[derive(Debug)]
pub struct Source {
    /// Its place below the root.
    pub path: String,
    /// All of it.
    pub text: String,
    /// Without comments and what strings contain.
    pub code: String,
    /// Comments only; the whole text of a document.
    pub comments: String,
    /// What strings contain.
    pub strings: String,
    /// What only tests compile, as ranges of bytes.
    tests: Vec<Range<usize>>,
    /// Whether all of it is for tests.
    all_test: bool,
}

impl Source {
    /// A file's text, distinguished by its ending.
    pub fn new(path: &str, text: String) -> Self {
        let layers = if path.ends_with(".rs") { Layers::of(&text) } else { Layers::of_document(&text) };
        let Layers { code, comments, strings } = layers;
        let tests = test_ranges(&code);
        let all_test = ["/tests/", "/benches/", "/examples/"].iter().any(|folder| path.contains(folder))
            || ["crates/testing/", "crates/fuzzing/", "fuzz/"].iter().any(|folder| path.starts_with(folder));
        Self { path: path.to_owned(), text, code, comments, strings, tests, all_test }
    }

    /// The crate that it belongs to, or the folder, for counting.
    pub fn place(&self) -> &str {
        match self.path.strip_prefix("crates/").and_then(|path| path.split_once('/')) {
            Some((name, _)) => name,
            None => self.path.split_once('/').map_or(&self.path, |(folder, _)| folder),
        }
    }

    /// Whether it is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether only tests compile what is at this byte.
    pub fn is_test(&self, at: usize) -> bool {
        self.all_test || self.tests.iter().any(|range| range.contains(&at))
    }

    /// The number of the line in which this byte is, from 1.
    pub fn line(&self, at: usize) -> usize {
        self.text[..at].bytes().filter(|byte| *byte == b'\n').count() + 1
    }
}

/// All Rust files and documents of the project, by path.
///
/// # Errors
/// What the system says when it cannot read one.
pub fn all(root: &Path) -> io::Result<Vec<Source>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if kind.is_dir() && !OUTSIDE.contains(&&*name) {
                folders.push(path);
            } else if kind.is_file() && (name.ends_with(".rs") || name.ends_with(".md")) {
                let below = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                found.push(Source::new(&below, fs::read_to_string(&path)?));
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    mark_test_modules(&mut found);
    Ok(found)
}

/// The paths of all files below the root but those that a build or git makes.
pub fn files(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if entry.file_type().is_ok_and(|kind| !kind.is_dir()) {
                found.insert(path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned());
            } else if name != "target" && name != ".git" {
                folders.push(path);
            }
        }
    }
    found
}

/// Marks files that are modules which only tests compile.
fn mark_test_modules(sources: &mut [Source]) {
    let mut modules = BTreeSet::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        let folder = match source.path.rsplit_once('/') {
            Some((folder, "lib.rs" | "main.rs" | "mod.rs")) => folder,
            _ => source.path.trim_end_matches(".rs"),
        };
        for range in &source.tests {
            let item = source.code[range.clone()].trim_end();
            if let Some(name) = item.strip_suffix(';').and_then(|item| item.rsplit_once("mod ")) {
                modules.insert(format!("{folder}/{}", name.1.trim()));
            }
        }
    }
    for source in sources {
        let path = source.path.trim_end_matches(".rs");
        source.all_test |=
            path.match_indices('/').any(|(at, _)| modules.contains(&path[..at])) || modules.contains(path);
    }
}

/// Ranges of items behind `#[cfg(...)]` that names `test`.
fn test_ranges(code: &str) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (at, _) in code.match_indices("#[cfg(") {
        let Some(end) = closing(code, at + 1) else { continue };
        let condition = &code[at..end];
        let names_test = words(condition).any(|(_, word)| word == "test") && !condition.contains("not(test)");
        if names_test && ranges.last().is_none_or(|last| last.end <= at) {
            ranges.push(at..end_of_item(code, end));
        }
    }
    ranges
}

/// Where the item ends whose attributes or text begin at `from`.
fn end_of_item(code: &str, from: usize) -> usize {
    let mut at = from;
    while let Some(byte) = code.as_bytes().get(at) {
        match byte {
            b'{' => return closing(code, at).unwrap_or(code.len()),
            b'(' | b'[' => at = closing(code, at).unwrap_or(code.len()),
            b';' | b',' => return at + 1,
            _ => at += 1,
        }
    }
    code.len()
}

/// The place behind the bracket that closes the one at `open`, which may be of any kind.
pub fn closing(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The identifiers of a text, with their places.
pub fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].find(is_part)?;
        let end = text[start..].find(|character| !is_part(character)).map_or(text.len(), |length| start + length);
        at = end;
        Some((start, &text[start..end]))
    })
}

struct Layers {
    code: String,
    comments: String,
    strings: String,
}

impl Layers {
    fn of_document(text: &str) -> Self {
        let blank = blanked(text);
        Self { code: blank.clone(), comments: text.to_owned(), strings: blank }
    }

    fn of(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut kinds = vec![0_u8; bytes.len()];
        let mut at = 0;
        while at < bytes.len() {
            let before = at.checked_sub(1).map_or(b' ', |before| bytes[before]);
            let (end, kind) = match bytes[at] {
                b'/' if bytes.get(at + 1) == Some(&b'/') => (end_of_line(text, at), 1),
                b'/' if bytes.get(at + 1) == Some(&b'*') => (end_of_block_comment(bytes, at), 1),
                b'"' => (end_of_string(bytes, at + 1), 2),
                b'r' | b'b' | b'c' if !(before.is_ascii_alphanumeric() || before == b'_') => {
                    (end_of_raw_string(bytes, at).unwrap_or(at + 1), 2)
                }
                b'\'' => (end_of_character(text, at), 2),
                _ => (at + 1, 0),
            };
            if end > at + 1 {
                // The quotes of a string stay in the code.
                let (from, to) = if kind == 2 { (at + 1, end - 1) } else { (at, end) };
                kinds[from..to].fill(kind);
            }
            at = end;
        }
        let layer = |wanted: u8| {
            let keep = |(at, character): (usize, char)| {
                if kinds[at] == wanted || character == '\n' { vec![character] } else { vec![' '; character.len_utf8()] }
            };
            text.char_indices().flat_map(keep).collect()
        };
        Self { code: layer(0), comments: layer(1), strings: layer(2) }
    }
}

fn blanked(text: &str) -> String {
    text.chars().flat_map(|it| if it == '\n' { vec![it] } else { vec![' '; it.len_utf8()] }).collect()
}

fn end_of_line(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |length| at + length)
}

fn end_of_block_comment(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") => (depth, at) = (depth + 1, at + 2),
            Some(b"*/") if depth == 1 => return at + 2,
            Some(b"*/") => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    bytes.len()
}

fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of a raw string, if one begins here; other strings with a letter in front end as usual.
fn end_of_raw_string(bytes: &[u8], at: usize) -> Option<usize> {
    let letters = bytes[at..].iter().take_while(|byte| b"bcr".contains(byte)).count();
    let raw = bytes[at..at + letters].contains(&b'r');
    let hashes = bytes[at + letters..].iter().take_while(|byte| **byte == b'#').count();
    let open = at + letters + hashes;
    if bytes.get(open) != Some(&b'"') || letters > 2 || (hashes > 0 && !raw) {
        return None;
    }
    if !raw {
        return Some(end_of_string(bytes, open + 1));
    }
    let end = [&b"\""[..], &vec![b'#'; hashes]].concat();
    let length = bytes[open + 1..].windows(end.len()).position(|it| it == end)?;
    Some(open + 1 + length + end.len())
}

/// The end of a character between quotes; a lifetime is passed over by its quote.
fn end_of_character(text: &str, at: usize) -> usize {
    let mut rest = text[at + 1..].char_indices();
    match rest.next() {
        Some((_, '\\')) => {
            rest.next();
            rest.find(|(_, character)| *character == '\'').map_or(at + 1, |(length, _)| at + length + 2)
        }
        Some(_) => match rest.next() {
            Some((length, '\'')) => at + length + 2,
            _ => at + 1,
        },
        None => at + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_comments_and_strings_are_distinguished() {
        let text = "let a = \"x // \\\" y\"; // it's \"so\"\n\
                    let b = ('\"', '\\'', b'x', r#\"q\"z\"#); /* c /* d */ e */ f::<'a>()";
        let source = Source::new("a.rs", text.to_owned());
        let shown = |layer: &str| layer.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(shown(&source.comments), "// it's \"so\" /* c /* d */ e */");
        assert_eq!(shown(&source.strings), "x // \\\" y \" \\' x #\"q\"z\"");
        assert_eq!(shown(&source.code), "let a = \" \"; let b = (' ', ' ', b' ', r #); f::<'a>()");
        assert_eq!(source.code.len(), text.len());
    }

    #[test]
    fn what_only_tests_compile_is_known() {
        let text = "fn a() {}\n#[cfg(test)]\nfn b() {}\n\
                    #[cfg(not(test))]\nfn c() {}\n#[cfg(all(test, loom))]\nmod d;\nfn e() {}\n";
        let source = Source::new("crates/x/src/lib.rs", text.to_owned());
        let tests: Vec<bool> =
            "abcde".chars().map(|name| source.is_test(text.find(&format!(" {name}")).unwrap())).collect();
        assert_eq!(tests, [false, true, false, true, false]);
        let mut all = vec![
            source,
            Source::new("crates/x/src/d.rs", String::new()),
            Source::new("crates/x/src/d/f.rs", String::new()),
            Source::new("crates/x/src/e.rs", String::new()),
        ];
        mark_test_modules(&mut all);
        assert_eq!(all.iter().map(|source| source.is_test(0)).collect::<Vec<_>>(), [false, true, true, false]);
    }
}
