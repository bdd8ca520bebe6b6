//! docs/configuration.md and docs/laboratory.md against the documentation of the keys, which are
//! the doc comments of their fields.

use std::{collections::BTreeMap, env, fs, path::Path};

use clap::{Arg, CommandFactory};
use serde_json::Value;

use super::flags::{Keys, documentation, name_of, shown, type_of, words};
use crate::cli::Cli;

const BEGIN: &str = "<!-- keys: ";
const END: &str = "<!-- end of keys -->\n";

/// Links to other documents.
fn linked(text: &str) -> String {
    let mut parts = text.split("docs/");
    let mut linked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let ends = part.find([')', ',', ' ']).unwrap_or(part.len());
        let (place, rest) = part.split_at(ends);
        let bare = place.trim_end_matches(['.', ':']);
        let title = bare.split_once(".md").map_or(bare, |(title, _)| title);
        linked.push_str(&format!("[{title}]({bare}){}{rest}", &place[bare.len()..]));
    }
    linked
}

/// What a key means, with what each of its words means.
fn meaning_of(arg: &Arg) -> String {
    let (mut meaning, _) = documentation(arg);
    for (word, help) in words(arg) {
        let (first, rest) = help.split_at(1);
        meaning.push_str(&format!(" `{word}`: {}{rest}.", first.to_lowercase()));
    }
    meaning
}

/// The table of the keys below a heading.
fn table(args: &[&Arg], defaults: &BTreeMap<String, Value>) -> String {
    let mut table = "| key | type | default | meaning | when to change it |\n|---|---|---|---|---|\n".to_owned();
    for arg in args {
        let name = name_of(arg.get_id().as_str());
        let (key, default) = defaults.iter().find(|(key, _)| name_of(key) == name).expect("a flag has a key");
        let default = match shown(default).as_str() {
            word @ ("none" | "empty" | "true" | "false") if !default.is_string() || word == "empty" => word.to_owned(),
            number if default.is_number() => number.to_owned(),
            word => format!("`{word}`"),
        };
        let (_, when) = documentation(arg);
        let (type_, meaning) = (type_of(arg), linked(&meaning_of(arg)));
        table.push_str(&format!("| `{key}` | {type_} | {default} | {meaning} | {} |\n", linked(&when)));
    }
    table
}

/// A document with its tables of keys as they should be, and how many keys they have.
fn made(document: &str) -> (String, usize) {
    let (args, defaults): (Vec<_>, _) = (Keys::Laboratory.args().collect(), Keys::Laboratory.defaults());
    let (mut made, mut keys, mut rest) = (String::new(), 0, document);
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (heading, after) = after.split_once(" -->\n").expect("a heading ends in its line");
        let args: Vec<_> = args.iter().filter(|arg| arg.get_help_heading() == Some(heading)).collect();
        assert!(!args.is_empty(), "no key is below {heading}");
        keys += args.len();
        let (_, after) = after.split_once(END).expect("keys have an end");
        made.push_str(&format!("{before}{BEGIN}{heading} -->\n{}{END}", table(&args, &defaults)));
        rest = after;
    }
    (made + rest, keys)
}

/// Each table of docs/configuration.md and docs/laboratory.md is made of the fields' doc comments.
/// `UPDATE_DOCS=1` writes it.
#[test]
fn the_documents_are_made_of_the_fields_comments() {
    let product = Keys::Product.defaults().len();
    for (name, expected) in [("configuration", product), ("laboratory", Keys::Laboratory.defaults().len() - product)] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/{name}.md"));
        let (made, keys) = made(&fs::read_to_string(&path).unwrap());
        assert_eq!(keys, expected, "each key is below one heading of docs/{name}.md");
        if env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, &made).unwrap();
        }
        let document = fs::read_to_string(&path).unwrap();
        let differs = document.lines().zip(made.lines()).find(|(is, should)| is != should);
        assert!(document == made, "write docs/{name}.md with UPDATE_DOCS=1: {differs:?}");
    }
}

/// What an operator has to look through stays short. A key that only tests, benchmarks and
/// experiments set gets the heading `LABORATORY`, one that is seldom set is hidden from the help.
#[test]
fn keys_and_options_are_few() {
    assert!(Keys::Product.defaults().len() <= 55, "{} keys", Keys::Product.defaults().len());
    let mut cli = Cli::command();
    cli.build();
    let serve = cli.find_subcommand("serve").unwrap();
    let shown = serve.get_arguments().filter(|arg| !arg.is_hide_set());
    let (short, long): (Vec<&Arg>, Vec<&Arg>) = shown.partition(|arg| !arg.is_hide_short_help_set());
    assert!(short.len() <= 25 && short.len() + long.len() <= 50, "{} and {} options", short.len(), long.len());
}

/// Both paragraphs of each key.
#[test]
fn every_key_has_its_meaning_and_when_to_change_it() {
    for arg in Keys::Laboratory.args() {
        let (meaning, when) = documentation(&arg);
        for text in [meaning, when] {
            assert!(text.len() > 10 && text.ends_with('.') && !text.contains('\n'), "{}: {text:?}", arg.get_id());
        }
    }
}
