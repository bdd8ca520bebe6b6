//! `freshet token`, `freshet enrol` and `freshet reset-terms`: membership of a cluster, and
//! recovery from a wrong term.

use std::{fs, process::ExitCode, time::Duration};

use freshet_base::private;
use freshet_engine::node::{archive, enrol_client};
use freshet_membership::{Grant, Identity, Token};
use serde_json::json;

use crate::{
    Failure,
    cli::{EnrolOptions, ResetTermsOptions, Role, TokenOptions},
    wrong_port,
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
    let token = client.token(grant, Duration::from_secs(options.valid), PATIENCE)?;
    options.prints.show(&json!({ "token": token, "valid_s": options.valid }), || token.clone());
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
    let credentials = enrol_client(&options.node, &token);
    let credentials = credentials.map_err(|cause| wrong_port::explain(cause, [options.node.as_str()]))?;
    if let Identity::Node(_) = credentials.identity() {
        let why = "that token was for a node, and is used up now: make one with `freshet token --role operator`";
        return Err(Failure::new(why));
    }
    credentials.write(&options.directory)?;
    let (directory, identity) = (options.directory.display(), credentials.identity());
    let value = json!({ "directory": options.directory, "identity": identity.to_string() });
    options.prints.show(&value, || format!("{directory} holds a certificate: {identity}"));
    Ok(ExitCode::SUCCESS)
}

/// Has a node forget every term later than the last one in its log.
pub(crate) fn reset_terms(options: &ResetTermsOptions) -> Result<ExitCode, Failure> {
    let reset = archive::reset_terms(&options.directory)?;
    let (directory, before, after) = (options.directory.display(), reset.before, reset.after);
    let value = json!({ "directory": options.directory, "latest_term": after, "before": before });
    options.prints.show(&value, || format!("{directory}: the latest term is {after}, and was {before}"));
    Ok(ExitCode::SUCCESS)
}
