//! `freshet stop`: a node stops, or all nodes of a cluster do, one after the other.

use std::{
    os::fd::OwnedFd,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use freshet_base::wait::{self, Patience};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};
use serde_json::{Value, json};

use crate::{
    Failure,
    cli::{Asked, ThePrimary},
    maintenance,
    members::{nodes, others},
    messages::plain,
    prints::Prints,
    status::text,
    switch_over::{self, SwitchOverOptions},
};

/// How long a node may take to accept a connection, and to take an order.
const CONNECT: Duration = Duration::from_secs(5);
const ORDER: Duration = Duration::from_secs(15);
/// How often it is looked whether a node is gone.
const LOOK: Duration = Duration::from_millis(100);
/// The order is given again when it was looked so often.
const AGAIN: u32 = 50;
/// How often the role is offered before the command gives up.
const ATTEMPTS: u32 = 3;

/// Options of `freshet stop`.
#[derive(Debug, Args)]
pub(crate) struct StopOptions {
    #[command(flatten)]
    asked: Asked,
    /// Stop another node, by the word of that one: its id, or the address where other nodes reach
    /// it, as `freshet members` shows them. A witness has no control port, and is stopped so.
    #[arg(long, value_name = "NODE", conflicts_with = "cluster")]
    node: Option<String>,
    /// Stop all nodes of the cluster, one after the other, the primary last. The node that is asked
    /// has to be the primary.
    #[arg(long)]
    cluster: bool,
    /// Let a primary stop without handing its role to a standby first.
    #[arg(long)]
    no_hand_over: bool,
    /// How long each node may take until its process has ended, in seconds.
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    #[command(flatten)]
    prints: Prints,
}

/// A node that is to stop.
struct Subject {
    id: String,
    address: String,
    role: String,
    status: Value,
    /// Its process, where that runs on this machine.
    process: Option<OwnedFd>,
}

/// Runs `freshet stop`.
pub(crate) fn run(options: &StopOptions) -> Result<ExitCode, Failure> {
    if let Some(node) = &options.node {
        return other(options, node);
    }
    let subject = Subject::of(options)?;
    if options.cluster {
        stop_others(options, &subject)?;
    } else if subject.role == "primary" && !options.no_hand_over && has_successor(&subject.status) {
        hand_over(options)?;
    }
    // A primary that has handed its role over starts again, to follow: then it takes no order.
    let ordered = || match options.asked.connect(CONNECT).and_then(|client| Ok(client.stop(None, ORDER)?)) {
        Ok(_) => Some(()),
        Err(_) => subject.has_ended(options).then_some(()),
    };
    subject.wait(options, ordered)?;
    // It may have been about to start again when the order came, and has forgotten that then.
    let mut looks = 0;
    subject.wait(options, || {
        looks += 1;
        if looks % AGAIN == 0 {
            let _ = ordered();
        }
        subject.has_ended(options).then_some(())
    })?;
    let value = json!({ "node": subject.id, "address": subject.address, "role": subject.role, "stopped": true });
    options.prints.show(&value, || format!("{} at {}, the {}, has stopped", subject.id, subject.address, subject.role));
    Ok(ExitCode::SUCCESS)
}

impl Subject {
    /// The node that is asked.
    fn of(options: &StopOptions) -> Result<Self, Failure> {
        let address = options.asked.address()?.to_owned();
        let client = options.asked.shows.connect(&address, CONNECT).map_err(|cause| match cause.is_refused() {
            true => Failure::new(format!("no node runs at {address}: there is nothing to stop")),
            false => cause.into(),
        })?;
        let status: Value = serde_json::from_str(&client.status(ORDER)?)?;
        let own = options.asked.shows.credentials.is_none();
        let pid = status["pid"].as_i64().filter(|_| own).and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let (id, role) = (text(&status["node"]), text(&status["role"]));
        Ok(Self { id, address, role, status, process })
    }

    /// Whether its process has ended; of one on another machine, whether its port is closed.
    fn has_ended(&self, options: &StopOptions) -> bool {
        match &self.process {
            Some(process) => {
                let now = Timespec { tv_sec: 0, tv_nsec: 0 };
                poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
            }
            None => options.asked.shows.connect(&self.address, CONNECT).is_err_and(|cause| cause.is_refused()),
        }
    }

    fn wait<T>(&self, options: &StopOptions, look: impl FnMut() -> Option<T>) -> Result<T, Failure> {
        wait_for(options, &format!("{} at {}", self.id, self.address), look)
    }
}

/// Blocks until `look` finds something.
fn wait_for<T>(options: &StopOptions, who: &str, look: impl FnMut() -> Option<T>) -> Result<T, Failure> {
    let patience = Patience::endless().until(Instant::now() + Duration::from_secs(options.timeout));
    let late = |_| {
        Failure::new(format!(
            "{who} has not stopped within {} s (--timeout), and may do so later: see its log, and freshet status",
            options.timeout
        ))
    };
    wait::poll(LOOK, patience, look).map_err(late)
}

/// Whether a standby may take the role.
fn has_successor(status: &Value) -> bool {
    let may = |standby: &Value| standby["connected"] == true && standby["in_sync"] == true && standby["mirror"] != true;
    status["standbys"].as_array().is_some_and(|standbys| standbys.iter().any(may))
}

/// A standby on a busy machine may not take the role in time: then it is offered again.
fn hand_over(options: &StopOptions) -> Result<(), Failure> {
    let (shows, address) = (options.asked.shows.clone(), options.asked.address()?.to_owned());
    let primary = ThePrimary { address, shows };
    let offer = SwitchOverOptions { to: None, primary, prints: Prints::quiet() };
    let mut last = None;
    for _ in 0..ATTEMPTS {
        match switch_over::run(&offer) {
            Ok(_) => {
                options.prints.note("a standby has taken the role");
                return Ok(());
            }
            Err(cause) => last = Some(cause),
        }
    }
    let cause = last.map(|cause| cause.to_string()).unwrap_or_default();
    Err(Failure::new(format!(
        "no standby has taken the role, and so the primary does not stop: {cause}; freshet stop --no-hand-over stops \
         it all the same"
    )))
}

/// What the node that is asked knows of its cluster.
fn table(options: &StopOptions) -> Result<Value, Failure> {
    let client = options.asked.connect(CONNECT)?;
    Ok(serde_json::from_str(&client.members(ORDER)?)?)
}

/// Has another node stop than that which is asked, and waits until it is away.
fn other(options: &StopOptions, node: &str) -> Result<ExitCode, Failure> {
    let members = table(options)?;
    let is_it = |it: &&Value| it["node"] == node || it["address"] == node;
    let leads = nodes(&members).iter().find(is_it).is_some_and(|it| it["role"] == "primary");
    if leads && !options.no_hand_over {
        return Err(Failure::new(
            "that node is the primary: ask it itself, so that it hands its role over, or add --no-hand-over",
        ));
    }
    let id = options.asked.connect(CONNECT)?.stop(Some(node.to_owned()), ORDER)?.to_string();
    wait_for(options, &id, || table(options).ok().filter(|members| !is_here(&id, members)))?;
    options.prints.show(&json!({ "node": id, "stopped": true }), || format!("{id} has stopped"));
    Ok(ExitCode::SUCCESS)
}

fn is_here(id: &str, members: &Value) -> bool {
    nodes(members).iter().any(|it| it["node"] == id && it["connected"] == true)
}

/// Has all nodes stop but the primary, which is asked.
fn stop_others(options: &StopOptions, primary: &Subject) -> Result<(), Failure> {
    let members = table(options)?;
    if primary.role != "primary" || members["primary"] != true {
        return Err(Failure::new("all nodes stop one after the other by the word of the primary: ask that one"));
    }
    // No node takes over while others stop. It is forgotten when they are started again.
    let lasts = maintenance::bounded(Duration::from_secs(options.timeout) * (1 + nodes(&members).len() as u32));
    let ordered = options.asked.connect(CONNECT)?.order_maintenance(lasts, ORDER);
    ordered.map_err(|cause| Failure::new(format!("no node stops: {cause}")))?;
    for [id, role, address] in others(&members).iter().filter(|[id, _, _]| is_here(id, &members)) {
        options.asked.connect(CONNECT)?.stop(Some(id.clone()), ORDER)?;
        wait_for(options, id, || table(options).ok().filter(|members| !is_here(id, members)))?;
        options.prints.note(&format!("{role} {id} at {} has stopped", plain(address)));
    }
    Ok(())
}
