//! `freshet advise`: which form of replication fits each standby of a running primary, and what
//! each would cost.
//!
//! | module | is |
//! |---|---|
//! | [`measure`] | attaches to the primary, looks, and takes down |
//! | [`reckon`] | says what follows from that; it does no I/O |
//! | [`constants`] | what was measured before |
//! | [`show`] | the answer for people |

mod constants;
mod measure;
mod reckon;
mod show;

use std::{process::ExitCode, time::Duration};

use serde::Serialize;

use self::{
    constants::Constant,
    measure::Measured,
    reckon::{Advice, Load, Standby},
};
use crate::{Failure, cli::AdviseOptions};

/// How long a node may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// All that is said.
#[derive(Debug, Serialize)]
struct Report {
    node: String,
    address: String,
    measured: Load,
    standbys: Vec<Advice>,
    /// What the figures marked `constant` and `reckoned` rest on.
    constants: Vec<Constant>,
}

/// Measures, and says what fits. Changes nothing.
pub(crate) fn run(options: &AdviseOptions) -> Result<ExitCode, Failure> {
    let client = options.asked.connect(CONNECT)?;
    let Measured { node, address, load, mut standbys } =
        measure::measure(&client, options.asked.address()?, Duration::from_secs(options.seconds))?;
    if standbys.is_empty() {
        standbys.push(Standby::default());
    }
    let advices = reckon::advise(&load, standbys);
    let constants = constants::ALL.to_vec();
    let report = Report { node, address, measured: load, standbys: advices, constants };
    options.prints.show(&report, || show::text(&report));
    Ok(ExitCode::SUCCESS)
}
