//! `freshet-tidy` says what offends the rules; `--fix` wraps comments and lowers the ratchet.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use freshet_tidy::{ratchet, rules, source, wrap};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> std::io::Result<ExitCode> {
    let root = source::root();
    let below: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    let here = |path: &str| below.is_empty() || below.iter().any(|prefix| path.starts_with(prefix.as_str()));
    let fix = arguments.iter().any(|argument| argument == "--fix");
    if let Some(unknown) = arguments.iter().find(|argument| argument.starts_with("--") && *argument != "--fix") {
        eprintln!("{unknown} is unknown. freshet-tidy [--fix] [PATH below the project's root]...");
        return Ok(ExitCode::FAILURE);
    }
    if fix {
        for source in source::all(&root)?.iter().filter(|source| source.is_rust() && here(&source.path)) {
            let wrapped = wrap::comments(source);
            if wrapped != source.text {
                std::fs::write(root.join(&source.path), wrapped)?;
                println!("wrapped {}", source.path);
            }
        }
    }
    let offences = rules::check(&root, &source::all(&root)?);
    if fix {
        ratchet::lower(&root, &ratchet::read(&root)?, &ratchet::counts(&offences))?;
    } else {
        for offence in offences.iter().filter(|offence| here(&offence.at)) {
            println!("{} {}: {}", offence.rule, offence.at, offence.what);
        }
    }
    let wrong = ratchet::compare(&ratchet::read(&root)?, &ratchet::counts(&offences), &offences);
    wrong.iter().for_each(|wrong| eprintln!("{wrong}"));
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
