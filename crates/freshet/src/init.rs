//! `freshet init`: the first node of a new cluster, with its first role's password, before anything
//! is served.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use serde_json::json;

use crate::{Failure, children::NodeProcess, config::Settings, prints::Prints, sql_client::Session};

/// How long the node may take to begin, to answer, and to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// No password is longer.
const LONGEST: usize = 1024;
const PASSWORD: &str = "FRESHET_PASSWORD";

/// Options of `freshet init`.
#[derive(Debug, Args)]
pub(crate) struct InitOptions {
    /// The configuration file with which the node will be started. Its addresses are not used yet.
    #[arg(long, value_name = "FILE", env = "FRESHET_CONFIG")]
    config: Option<PathBuf>,
    /// The directory of the node, if it is not to be the configured one.
    #[arg(long, value_name = "DIR", env = "FRESHET_DIRECTORY")]
    directory: Option<PathBuf>,
    /// A file with the password of the first role (`sql.user`), on its first line; `-` for standard
    /// input. Without this it is the environment's FRESHET_PASSWORD. With neither, the role gets no
    /// password, and logs in by the Unix socket alone.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Do nothing, and succeed, where the directory is in use already: for containers, which do the
    /// same at each start. Only where the directory cannot be lost without the cluster: a first
    /// node that comes back without its data would begin another cluster beside the one it had.
    #[arg(long)]
    if_new: bool,
    #[command(flatten)]
    prints: Prints,
}

/// Runs `freshet init`.
pub(crate) fn run(options: &InitOptions) -> Result<ExitCode, Failure> {
    let settings = match &options.config {
        Some(file) => Settings::of_file(file)?,
        None => Settings::default(),
    };
    let directory = options.directory.as_ref().unwrap_or(&settings.node.directory);
    if is_in_use(directory)? {
        if options.if_new {
            options.prints.show(&json!({ "directory": directory, "begun": false }), || {
                format!("{} is in use already: nothing is changed", directory.display())
            });
            return Ok(ExitCode::SUCCESS);
        }
        let place = directory.display();
        return Err(Failure::new(format!("{place} is not empty: a new cluster begins in a new directory")));
    }
    let password = password(options)?;
    begin(options, directory, &settings.server.sql.user, password.as_deref())?;
    options.prints.show(&json!({ "directory": directory, "begun": true, "password": password.is_some() }), || {
        let rest = if password.is_some() { "" } else { "; its first role has no password" };
        format!("a new cluster has begun in {}{rest}", directory.display())
    });
    Ok(ExitCode::SUCCESS)
}

/// What a node has in its directory that was started without a log, and was refused.
const OF_REFUSED: [&str; 4] = ["lock", "membership", "control", "control.new"];

/// Whether more is in that directory.
fn is_in_use(directory: &Path) -> Result<bool, Failure> {
    let failed = |cause| Failure::new(format!("cannot read {}: {cause}", directory.display()));
    let entries = match fs::read_dir(directory) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        if !OF_REFUSED.iter().any(|known| *known == name) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The password, if there is to be one.
fn password(options: &InitOptions) -> Result<Option<String>, Failure> {
    let given = match &options.password_file {
        Some(file) => {
            let failed = |cause| Failure::new(format!("cannot read the password from {}: {cause}", file.display()));
            let source: Box<dyn Read> = match file.to_str() {
                Some("-") => Box::new(io::stdin()),
                _ => Box::new(fs::File::open(file).map_err(failed)?),
            };
            let mut text = String::new();
            source.take(LONGEST as u64 + 2).read_to_string(&mut text).map_err(failed)?;
            Some(text.lines().next().unwrap_or_default().to_owned())
        }
        None => match std::env::var(PASSWORD) {
            Ok(password) => Some(password),
            Err(std::env::VarError::NotPresent) => None,
            Err(cause) => return Err(Failure::new(format!("{PASSWORD}: {cause}"))),
        },
    };
    match given {
        Some(password) if password.is_empty() || password.len() > LONGEST || password.contains('\0') => {
            Err(Failure::new(format!("the password has to have 1 to {LONGEST} bytes, on the first line")))
        }
        given => Ok(given),
    }
}

/// Has a node begin the cluster which only this process can reach, and ends it.
fn begin(options: &InitOptions, directory: &Path, user: &str, password: Option<&str>) -> Result<(), Failure> {
    // Only this user can look into it.
    let place = tempfile::Builder::new().prefix("freshet-init-").tempdir()?;
    let access = place.path().join("access");
    fs::write(&access, "local all all trust\n")?;
    let mut flags: Vec<OsString> = vec!["--new-cluster".into()];
    for key in ["--listen", "--address", "--sql-listen"] {
        flags.extend([key.into(), "127.0.0.1:0".into()]);
    }
    flags.extend(["--sql-socket-directory".into(), place.path().into()]);
    flags.extend(["--sql-access".into(), access.into_os_string(), "--directory".into(), directory.into()]);
    if let Some(file) = &options.config {
        flags.extend(["--config".into(), file.into()]);
    }
    let failed = |cause: &dyn std::fmt::Display| Failure::new(format!("no cluster has begun: {cause}"));
    let mut node = NodeProcess::start(&std::env::current_exe()?, flags, PATIENCE).map_err(|cause| failed(&cause))?;
    if let Some(password) = password {
        let socket = node.ready().sql_socket.clone();
        let socket = socket.ok_or_else(|| failed(&"the node serves no Unix socket"))?;
        let statement = format!("ALTER ROLE {} PASSWORD {}", quoted(user, '"'), quoted(password, '\''));
        let set = Session::open(&socket, user, PATIENCE).and_then(|mut session| session.run(&statement));
        set.map_err(|cause| Failure::new(format!("the cluster has begun, but its role has no password: {cause}")))?;
    }
    let ended = node.stop(PATIENCE)?;
    if ended.success() { Ok(()) } else { Err(failed(&format!("the node ended with {ended}: {}", node.messages()))) }
}

fn quoted(text: &str, quote: char) -> String {
    format!("{quote}{}{quote}", text.replace(quote, &format!("{quote}{quote}")))
}
