//! `freshet witness`: a node without data, that votes, until a signal ends it.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use freshet_engine::{
    NodeConfig, Order,
    node::{MembershipSettings, WitnessNode},
};
use serde::Serialize;

use crate::{
    Failure,
    certificates::CertificateWatch,
    ending::Ending,
    messages::{self, Format, Levels},
    notify, serve, wrong_port,
};

/// It looks so often whether it is to start again, or its certificate ends.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Options of `freshet witness`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct WitnessOptions {
    /// Where it keeps what it has promised and noted: a few kilobytes.
    #[arg(long, value_name = "DIR", default_value = "freshet-witness")]
    directory: PathBuf,
    /// Where it listens for nodes: host:port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7402")]
    listen: SocketAddr,
    /// Where other nodes reach it, if that is not where it listens.
    #[arg(long, value_name = "ADDRESS")]
    advertise: Option<String>,
    /// The `listen` address of a node of the cluster. Needed when it is new, and when no node is
    /// any more where it was.
    #[arg(long, value_name = "ADDRESS")]
    join: Option<String>,
    #[command(flatten)]
    member: MembershipSettings,
    /// How messages are written to standard error.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    log_format: Format,
    /// End cleanly when standard input ends: for processes that start witnesses.
    #[arg(long, hide = true)]
    while_stdin: bool,
}

/// What it prints when it answers.
#[derive(Serialize)]
struct Ready<'a> {
    listen: &'a str,
    node: String,
    cluster: String,
    pid: u32,
}

/// Runs a witness until a signal ends it.
///
/// # Errors
/// When it cannot start.
pub fn run(options: &WitnessOptions) -> Result<ExitCode, Failure> {
    let ending = Ending::listen(options.while_stdin)?;
    messages::begin(options.log_format, &Levels::default())?;
    freshet_base::panics::decide(messages::report_panic);
    let config = NodeConfig {
        directory: options.directory.clone(),
        listen: options.listen,
        advertise: options.advertise.clone(),
        join: options.join.clone(),
        member: options.member.clone(),
        ..NodeConfig::default()
    };
    let witness = ending.while_starting(|| WitnessNode::start(&config));
    let witness = witness.map_err(|cause| wrong_port::explain(cause, options.join.as_deref()))?;
    let ready = Ready {
        listen: witness.address(),
        node: witness.id().to_string(),
        cluster: witness.cluster().to_string(),
        pid: std::process::id(),
    };
    serve::print_ready(&ready)?;
    tracing::info!(
        node = ready.node,
        cluster = ready.cluster,
        listen = ready.listen,
        directory = %witness.directory().display(),
        "the witness is ready"
    );
    notify::ready("ready");
    let mut certificate = CertificateWatch::new(witness.credentials().clone());
    let mut ordered = None;
    while ordered.is_none() && !ending.wait_for(LOOK_EVERY) {
        certificate.look();
        ordered = witness.ordered();
    }
    let bound = witness.bound_address();
    notify::stopping();
    drop(witness);
    if ordered == Some(Order::Restart) {
        tracing::info!("this witness starts again, as an operator wants it");
        return Err(serve::become_again(&serve::program(), &[], &[("--listen", Some(bound.to_string()))]));
    }
    tracing::info!("the witness has stopped");
    Ok(ExitCode::SUCCESS)
}
