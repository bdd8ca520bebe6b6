//! `freshet config`: checks a file, shows what is in force, prints a sample.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    Settings, check,
    flags::{Keys, documentation, name_of, shown, type_of, words},
};
use crate::{Failure, cli::Asked, prints::Prints};

/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Lines of a sample are no longer than that.
const WIDTH: usize = 90;

/// What is asked of a configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a configuration file, without starting a node.
    ///
    /// Prints each mistake with its line, its key, and what is allowed. Exit status: 0 if a node
    /// can start with it, 1 if not. What depends on the machine, as a port that is taken, shows
    /// only when the node starts.
    Check(CheckOptions),
    /// Show the configuration in force of a running node, or that of a file: what differs from the
    /// default first.
    Show(ShowOptions),
    /// Print a configuration file with all keys, their defaults and documentation, commented out.
    Sample,
}

/// Options of `freshet config check`.
#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    /// The TOML file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    prints: Prints,
}

/// Options of `freshet config show`.
#[derive(Debug, Args)]
pub(crate) struct ShowOptions {
    #[command(flatten)]
    asked: Asked,
    /// Show what this TOML file comes to instead.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["at", "address"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    prints: Prints,
}

/// Runs `freshet config`.
pub(crate) fn run(command: &ConfigCommand) -> Result<ExitCode, Failure> {
    match command {
        ConfigCommand::Check(options) => run_check(options),
        ConfigCommand::Show(options) => show(options),
        ConfigCommand::Sample => {
            crate::prints::put(&sample());
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn run_check(options: &CheckOptions) -> Result<ExitCode, Failure> {
    let found = check::mistakes(&options.file, &Keys::Product.defaults())?;
    let file = options.file.display();
    options.prints.show(&json!({ "file": options.file, "mistakes": found }), || match found.is_empty() {
        true => format!("{file}: a node can start with it"),
        false => found.iter().map(|mistake| format!("{file}: {mistake}\n")).collect(),
    });
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(options: &ShowOptions) -> Result<ExitCode, Failure> {
    let keys = match &options.file {
        Some(file) => Settings::of_file(file)?.keys(),
        None => serde_json::from_str(&options.asked.connect(PATIENCE)?.configuration(PATIENCE)?)?,
    };
    let defaults = Settings::default().keys();
    let (mut changed, mut same): (BTreeMap<_, _>, BTreeMap<_, _>) =
        keys.into_iter().partition(|(key, value)| defaults.get(key) != Some(value));
    let product: BTreeSet<String> = Keys::Product.defaults().into_keys().collect();
    same.retain(|key, _| product.contains(key));
    changed.retain(|key, _| defaults.contains_key(key));
    options.prints.show(&json!({ "changed": changed, "default": same }), || {
        let mut text = "# What differs from the default:\n".to_owned();
        for (key, value) in &changed {
            let default = defaults.get(key).map(shown).unwrap_or_default();
            let _ = writeln!(text, "{} # default: {default}", line(key, value));
        }
        text.push_str("\n# What is as by default:\n");
        for (key, value) in &same {
            let _ = writeln!(text, "{}", line(key, value));
        }
        text
    });
    Ok(ExitCode::SUCCESS)
}

impl Settings {
    /// Those of a node that is started with this file alone.
    ///
    /// # Errors
    /// When it cannot be read, or a node cannot start with it.
    pub(crate) fn of_file(file: &Path) -> Result<Self, Failure> {
        let settings = Self::read(file, &Keys::Product.defaults())?;
        settings.check().map_err(|wrong| Failure::new(format!("{}: {wrong}", file.display())))?;
        Ok(settings)
    }
}

/// As a file has it. What is not set has no line there.
fn line(key: &str, value: &Value) -> String {
    if value.is_null() { format!("#{key} =") } else { format!("{key} = {value}") }
}

/// All keys, commented out.
fn sample() -> String {
    let (defaults, mut headings) = (Keys::Product.defaults(), Vec::new());
    let args: Vec<_> = Keys::Product.args().collect();
    let heading_of = |arg: &clap::Arg| arg.get_help_heading().unwrap_or("Others").to_owned();
    for arg in &args {
        let heading = heading_of(arg);
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    let mut text =
        "# The keys of a Freshet node. Take away the # before a key to change it; `freshet config check`\n# \
                    checks the file, `freshet serve --config` starts a node with it.\n"
            .to_owned();
    for heading in headings {
        let keys = args.iter().filter(|arg| heading_of(arg) == heading).filter_map(|arg| {
            let name = name_of(arg.get_id().as_str());
            defaults.iter().find(|(key, _)| name_of(key) == name).map(|(key, default)| (arg, key, default))
        });
        let mut begun = false;
        for (arg, key, default) in keys {
            if !begun {
                let _ = write!(text, "\n# ---- {heading} ----\n");
                begun = true;
            }
            let (meaning, when) = documentation(arg);
            let words: Vec<_> = words(arg).into_iter().map(|(word, _)| word).collect();
            let kind = if words.is_empty() { type_of(arg) } else { format!("one of {}", words.join(", ")) };
            let _ = write!(text, "\n{}{}", comment(&format!("{meaning} ({kind})")), comment(&when));
            let _ = writeln!(text, "#{}", line(key, default).trim_start_matches('#'));
        }
    }
    text
}

/// Lines of a comment.
fn comment(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), "#".to_owned());
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            lines.push_str(&line);
            lines.push('\n');
            line = "#".to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With each # before a key taken away, a sample says what is so without it.
    #[test]
    fn a_sample_has_all_keys_and_their_defaults() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("freshet.toml");
        let is_key = |line: &&str| line.starts_with('#') && !line.starts_with("# ") && line.len() > 1;
        let sample = sample();
        let lines: Vec<&str> = sample.lines().filter(is_key).map(|line| &line[1..]).collect();
        assert_eq!(lines.len(), Keys::Product.defaults().len());
        let set: String = lines.iter().filter(|line| !line.ends_with('=')).map(|line| format!("{line}\n")).collect();
        std::fs::write(&file, set).unwrap();
        assert_eq!(check::mistakes(&file, &Keys::Product.defaults()).unwrap(), []);
        assert_eq!(Settings::of_file(&file).unwrap().keys(), Settings::default().keys());
        assert!(sample.lines().all(|line| line.len() <= 2 * WIDTH), "{sample}");
    }
}
