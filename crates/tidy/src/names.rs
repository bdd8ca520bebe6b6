//! Names of items: words of them that there is a better one for.

use crate::source::{Source, closing, words};

/// What introduces the name of an item.
const KEYWORDS: [&str; 9] = ["fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod"];
/// The items that have fields or variants.
const WITH_MEMBERS: [&str; 3] = ["struct", "enum", "union"];

/// Words that are no part of a name, and what to write for them.
pub struct NoPart {
    words: Vec<String>,
    instead: String,
}

impl NoPart {
    /// `words -> what to write instead`
    pub fn read(line: &str) -> Self {
        let (words, instead) = line.split_once("->").unwrap_or((line, ""));
        Self { words: words.split_whitespace().map(str::to_owned).collect(), instead: instead.trim().to_owned() }
    }

    /// The names with such a word: their places, and what is wrong with each.
    pub fn find(&self, source: &Source) -> Vec<(usize, String)> {
        if !source.is_rust() {
            return Vec::new();
        }
        let wrong = |(at, name): (usize, &str)| {
            let part = parts(name).find(|part| self.words.contains(part))?;
            Some((at, format!("{name} has \"{part}\": {}", self.instead)))
        };
        items(&source.code).into_iter().filter_map(wrong).collect()
    }
}

/// The words of a name, in small letters: `told_of`, `ToldOf` and `TOLD_OF` have the same ones.
fn parts(name: &str) -> impl Iterator<Item = String> {
    let mut all = vec![String::new()];
    let mut before = ' ';
    for character in name.chars() {
        let begins = character.is_uppercase() && !before.is_uppercase();
        if character == '_' || begins {
            all.push(String::new());
        }
        if character != '_' {
            all.last_mut().expect("there is one").extend(character.to_lowercase());
        }
        before = character;
    }
    all.into_iter().filter(|part| !part.is_empty())
}

/// The names of items, of fields and of variants, with their places.
fn items(code: &str) -> Vec<(usize, &str)> {
    let all: Vec<(usize, &str)> = words(code).filter(|(_, word)| *word != "mut").collect();
    let mut found = Vec::new();
    for pair in all.windows(2) {
        let [(before, keyword), (at, name)] = pair else { continue };
        let between = code[before + keyword.len()..*at].trim();
        if !KEYWORDS.contains(keyword) || !(between.is_empty() || between == "mut") {
            continue;
        }
        found.push((*at, *name));
        if WITH_MEMBERS.contains(keyword)
            && let Some(open) = code[*at..].find(['{', ';', '(']).map(|length| at + length)
            && code[open..].starts_with('{')
        {
            let body = &code[open..closing(code, open).unwrap_or(code.len())];
            found.extend(members(body, *keyword == "enum").into_iter().map(|(within, name)| (open + within, name)));
        }
    }
    found
}

/// The fields and variants in the braces of a type.
fn members(body: &str, has_variants: bool) -> Vec<(usize, &str)> {
    let is_member = |(at, name): &(usize, &str)| {
        let (before, after) = (&body[..*at], body[at + name.len()..].trim_start());
        let is_field = after.starts_with(':') && !after.starts_with("::") && !before.ends_with(':');
        let brackets = |open: char| before.matches(open).count();
        let depth = [('{', '}'), ('(', ')'), ('[', ']')].map(|(open, close)| brackets(open) - brackets(close));
        let begins = before.trim_end().ends_with(['{', ',', ']']);
        is_field || has_variants && depth == [1, 0, 0] && begins
    };
    words(body).filter(is_member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &str) -> Vec<String> {
        let rule = NoPart::read("told says -> reported, sent");
        let source = Source::new("crates/a/src/b.rs", code.to_owned());
        rule.find(&source).into_iter().map(|(_, what)| what.split(' ').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn a_name_has_its_words_however_it_is_written() {
        let of = |name| parts(name).collect::<Vec<_>>();
        assert_eq!(of("told_of_it"), ["told", "of", "it"]);
        assert_eq!(of("ToldOfIt"), ["told", "of", "it"]);
        assert_eq!(of("TOLD_OF"), ["told", "of"]);
        assert_eq!(of("_tolds"), ["tolds"]);
    }

    #[test]
    fn items_fields_and_variants_are_looked_at() {
        let code = "pub fn told() {}\nstruct Told;\n\
             enum A { #[x] SaysSo, Other(says::Told), With { told: u8 }, Says = 2 }\n\
             struct B<T: X> { pub(crate) who_told: says::T, b: u8 }\n\
             const TOLD: u8 = 1;\nstatic mut SAYS: u8 = 1;\n\
             trait Says { type Told; }\nmod told;\nunion U { told: u8 }\n";
        let expected =
            ["told", "Told", "SaysSo", "told", "Says", "who_told", "TOLD", "SAYS", "Says", "Told", "told", "told"];
        assert_eq!(found(code), expected);
    }

    #[test]
    fn other_words_and_other_places_are_not() {
        let code = "// fn told() {}\nfn f(told: u8) { let says = \"fn told\"; g(told, says) }\nfn untold() {}\n\
                    struct Teller { tolds: Vec<told::X> }\nenum E { A(B, told::C), D }\nfn tell() {}";
        assert_eq!(found(code), Vec::<String>::new());
    }

    #[test]
    fn the_offence_names_what_to_write() {
        let rule = NoPart::read("told says -> reported, sent");
        let source = Source::new("crates/a/src/b.rs", "fn is_told() {}".to_owned());
        assert_eq!(rule.find(&source), [(3, "is_told has \"told\": reported, sent".to_owned())]);
        assert_eq!(rule.find(&Source::new("a.md", "fn is_told() {}".to_owned())), []);
    }
}
