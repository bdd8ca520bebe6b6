//! `freshet token`, `freshet enrol` and `freshet reset-terms`: membership of a cluster, and
//! recovery from a wrong term.

use std::{fs, process::ExitCode, time::Duration};

use freshet_base::private;
use freshet_engine::node::{archive, enrol_client};
use freshet_membership::{Grant, Identity, Token};

use crate::{
    Failure,
    cli::{EnrolOptions, ResetTermsOptions, Role, TokenOptions},
};

/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Has a member make a token, and prints it.
pub(crate) fn token(options: &TokenOptions) -> Result<ExitCode, Failure> {
    let grant = match options.role {
        None => Grant::Node(options.node),
        Some(Role::Operator) => Grant::Client(Identity::Operator),
        Some(Role::Monitor) => Grant::Client(Identity::Monitor),
    };
    let client = options.shows.connect(&options.address, PATIENCE)?;
    println!("{}", client.token(grant, Duration::from_secs(options.valid), PATIENCE)?);
    Ok(ExitCode::SUCCESS)
}

/// Gets a certificate for a client of the control port.
pub(crate) fn enrol(options: &EnrolOptions) -> Result<ExitCode, Failure> {
    let path = &options.token_file;
    private::check_file(path).map_err(|open| Failure::new(open.to_string()))?;
    let text = fs::read_to_string(path).map_err(|cause| Failure::new(format!("{}: {cause}", path.display())))?;
    let token: Token = text.parse()?;
    // This can fail, so it comes before the token is used up.
    let made = private::create_directories(&options.directory);
    made.map_err(|cause| Failure::new(format!("cannot make {}: {cause}", options.directory.display())))?;
    let credentials = enrol_client(&options.node, &token)?;
    if let Identity::Node(_) = credentials.identity() {
        let why = "that token was for a node, and is used up now: make one with `freshet token --role operator`";
        return Err(Failure::new(why));
    }
    credentials.write(&options.directory)?;
    println!("{} holds a certificate: {}", options.directory.display(), credentials.identity());
    Ok(ExitCode::SUCCESS)
}

/// Has a node forget every term later than the last one in its log.
pub(crate) fn reset_terms(options: &ResetTermsOptions) -> Result<ExitCode, Failure> {
    let reset = archive::reset_terms(&options.directory)?;
    println!("{}: the latest term is {}, and was {}", options.directory.display(), reset.after, reset.before);
    Ok(ExitCode::SUCCESS)
}
