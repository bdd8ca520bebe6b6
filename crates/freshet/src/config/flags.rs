//! Flags of `freshet serve`, and the environment variables of the same names.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::PathBuf,
};

use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, builder::PossibleValue, parser::ValueSource,
    value_parser,
};
use freshet_engine::{
    SettingError,
    node::headings::{COMMON, LABORATORY, ONE_START},
};
use serde_json::Value;

use super::{ConfigError, Settings};

/// Environment variables that are ours and no configuration keys.
const OTHERS: [&str; 6] = [
    "FRESHET_CONFIG",
    "FRESHET_CREDENTIALS",
    "FRESHET_SEED",
    "FRESHET_ROUNDS",
    "FRESHET_STRESS_SECONDS",
    "FRESHET_SKIPS",
];

/// Which keys a node knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Those of `freshet serve`.
    #[default]
    Product,
    /// Those too that only tests, benchmarks and experiments set: `freshet-lab node` knows them.
    Laboratory,
}

impl Keys {
    /// The arguments that are keys or are for one start. An argument is a key if a default is known
    /// for it.
    pub(super) fn args(self) -> impl Iterator<Item = Arg> {
        let all = Settings::augment_args_for_update(Command::new("keys"));
        let args: Vec<_> = all.get_arguments().cloned().collect();
        args.into_iter().filter(move |arg| self == Self::Laboratory || arg.get_help_heading() != Some(LABORATORY))
    }

    /// The keys, as a file writes them, with their defaults.
    pub(super) fn defaults(self) -> BTreeMap<String, Value> {
        let names: BTreeSet<String> = self.args().map(|arg| name_of(arg.get_id().as_str())).collect();
        let mut defaults = Settings::default().keys();
        defaults.retain(|key, _| names.contains(&name_of(key)));
        defaults
    }
}

/// What the command line and the environment say. What they leave open comes from the file, or is
/// the default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    /// The path of the configuration file, if one was named.
    pub(crate) config: Option<PathBuf>,
    given: ArgMatches,
    pub(super) keys: Keys,
}

/// The flags of a command, which knows the laboratory's keys or does not.
#[derive(Clone, Debug)]
pub(crate) struct Given<const LABORATORY: bool>(pub(crate) Flags);

impl<const LABORATORY: bool> Given<LABORATORY> {
    const KEYS: Keys = if LABORATORY { Keys::Laboratory } else { Keys::Product };
}

impl<const LABORATORY: bool> Args for Given<LABORATORY> {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .env("FRESHET_CONFIG")
            .hide_env(true)
            .help_heading(COMMON)
            .help(
                "TOML file with the same keys as the flags; those that begin with log-, checkpoint-, fabric-, mirror-, \
                 witness-, member- or sql- are in the tables of these names. Environment variables override the file, \
                 and flags override both [env: FRESHET_CONFIG]",
            );
        let defaults = Self::KEYS.defaults();
        command.next_line_help(true).arg(file).args(Self::KEYS.args().map(|arg| flag(arg, &defaults)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const LABORATORY: bool> FromArgMatches for Given<LABORATORY> {
    fn from_arg_matches(given: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(Flags { config: given.get_one("config").cloned(), given: given.clone(), keys: Self::KEYS }))
    }

    fn update_from_arg_matches(&mut self, given: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(given)?;
        Ok(())
    }
}

impl Flags {
    /// Puts what was said in the place of what `settings` says.
    pub(super) fn apply(&self, settings: &mut Settings) {
        // What derives from the settings asks for each of them, so it gets a command line that may
        // have them all.
        let all = Keys::Laboratory.args().map(with_value);
        let said = self.keys.args().flat_map(|arg| {
            let id = arg.get_id().as_str();
            let (flag, values) = (format!("--{}=", name_of(id)), self.given.get_raw(id).into_iter().flatten());
            let said = values.map(|value| [OsString::from(&flag), value.to_owned()].into_iter().collect::<OsString>());
            said.collect::<Vec<_>>()
        });
        let all = Command::new("keys").no_binary_name(true).args_override_self(true).args(all);
        let given = all.get_matches_from(said);
        settings.update_from_arg_matches(&given).expect("these arguments are those of the settings");
    }

    /// Names a setting as the user has written it.
    pub(super) fn blame(&self, wrong: SettingError) -> ConfigError {
        let SettingError { key, value, remedy } = wrong;
        let name = name_of(key);
        let source = self.given.ids().find(|id| name_of(id.as_str()) == name);
        let setting = match source.and_then(|id| self.given.value_source(id.as_str())) {
            Some(ValueSource::CommandLine) => format!("--{name} {value}"),
            Some(ValueSource::EnvVariable) => format!("{}={value}", variable(&name)),
            _ => match &self.config {
                Some(path) => format!("configuration file {}: {key} = {value}", path.display()),
                None => format!("{key} = {value}"),
            },
        };
        ConfigError::Value { setting, remedy }
    }
}

/// The name of a flag, without the dashes in front, from a key or from an argument's id.
pub(super) fn name_of(key: &str) -> String {
    key.replace(['.', '_'], "-")
}

/// The environment variable for a flag.
fn variable(name: &str) -> String {
    format!("FRESHET_{}", name.to_uppercase().replace('-', "_"))
}

/// The first paragraph of a key's documentation, and the rest.
pub(super) fn documentation(arg: &Arg) -> (String, String) {
    let text = arg.get_long_help().map(ToString::to_string).unwrap_or_default();
    let (meaning, when) = text.split_once("\n\n").unwrap_or((&text, ""));
    (meaning.to_owned(), when.to_owned())
}

/// The words that a key can be, each with its documentation.
pub(super) fn words(arg: &Arg) -> Vec<(String, String)> {
    let word = |word: PossibleValue| Some((word.get_name().to_owned(), word.get_help()?.to_string()));
    arg.get_possible_values().into_iter().filter_map(word).collect()
}

/// What the values of a key are.
pub(super) fn type_of(arg: &Arg) -> String {
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return "true or false".to_owned();
    }
    let name = arg.get_value_names().and_then(|names| names.first()).map(|name| name.to_string()).unwrap_or_default();
    let (one, many) = match name.as_str() {
        "ADDRESS" | "HOST:PORT" => ("address", "addresses"),
        "BYTES" => ("bytes", ""),
        "CPUS" => ("processors", ""),
        "DIR" => ("directory", "directories"),
        "FILE" => ("file", ""),
        "GBIT" => ("Gbit/s", ""),
        "MS" => ("ms", ""),
        "N" => ("number", ""),
        "NAME" => ("name", ""),
        "NS" => ("ns", ""),
        "PERCENT" => ("%", ""),
        "S" => ("s", ""),
        "URL" => ("address", "URLs"),
        "US" => ("µs", ""),
        _ => ("word", ""),
    };
    if arg.get_value_delimiter().is_some() { format!("list of {many}") } else { one.to_owned() }
}

/// The flag for a key; without a default, for what is no key.
fn flag(arg: Arg, defaults: &BTreeMap<String, Value>) -> Arg {
    let name = name_of(arg.get_id().as_str());
    let default = defaults.iter().find(|(key, _)| name_of(key) == name).map(|(_, value)| shown(value));
    let (meaning, when) = documentation(&arg);
    let is_common = matches!(arg.get_help_heading(), Some(COMMON | ONE_START));
    let arg = with_value(arg).hide_possible_values(true).hide_short_help(!is_common);
    let Some(default) = default else { return arg.long_help(format!("{meaning}\n\n{when}")).help(meaning) };
    let (variable, words) = (variable(&name), words(&arg));
    let one_of = match words.is_empty() {
        true => String::new(),
        false => format!(" [one of: {}]", words.iter().map(|(word, _)| word.as_str()).collect::<Vec<_>>().join(", ")),
    };
    let short = format!("{meaning}{one_of} [default: {default}] [env: {variable}]");
    let words: String = words.iter().map(|(word, help)| format!("\n- {word}: {help}")).collect();
    let long = format!("{short}{words}\n\n{when}");
    arg.env(variable).hide_env(true).help(short).long_help(long)
}

/// An argument whose value is written, though `true` may be left out.
fn with_value(arg: Arg) -> Arg {
    match arg.get_action() {
        ArgAction::SetTrue => {
            arg.action(ArgAction::Set).num_args(0..=1).default_missing_value("true").value_name("BOOL")
        }
        _ => arg,
    }
}

/// A default as people read it.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Array(list) if list.is_empty() => "none".to_owned(),
        Value::String(text) if text.is_empty() => "empty".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// Refuses variables that look like ours and are none.
///
/// # Errors
/// [`ConfigError::Environment`] names the first.
pub(super) fn check_environment(
    keys: Keys,
    vars: impl Iterator<Item = (OsString, OsString)>,
) -> Result<(), ConfigError> {
    let keys = keys.defaults();
    let known = |name: &str| OTHERS.contains(&name) || keys.keys().any(|key| variable(&name_of(key)) == name);
    for (name, _) in vars {
        let name = name.to_string_lossy();
        if name.starts_with("FRESHET_") && !known(&name) {
            return Err(ConfigError::Environment(name.into_owned()));
        }
    }
    Ok(())
}
