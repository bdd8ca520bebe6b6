//! A standby whose state is in doubt asks its primary, again and again, whether it may begin again
//! ([`freshet_engine::node::begin_again`]); an operator may say so, too. Here is the thread that
//! asks, what the status says of that, and the end of it: what was moved aside goes when the new
//! state was found equal to the primary's.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use freshet_base::lock;
use freshet_engine::{
    Domain, Node, Role,
    node::{
        RoleStatus, Verdict,
        begin_again::{self, Begun},
    },
};
use serde::Serialize;

use crate::Failure;

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(1);

const CANNOT: &str = "its directories cannot be moved aside";

/// What comes of a doubt, for the status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Outlook {
    /// What a node in doubt does, or whom it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    doubt_leads_to: Option<String>,
    /// Of a node that has begun again: what it had before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kept_aside: Vec<PathBuf>,
}

/// Whether a node begins again.
#[derive(Clone)]
pub(crate) struct BeginAgain(Arc<Shared>);

struct Shared {
    /// The address of the control port.
    control: SocketAddr,
    outlook: Mutex<Outlook>,
    /// It does, and joins the node there.
    due: Mutex<Option<String>>,
    /// How it has begun, as long as its new state is not proved.
    begun: Mutex<Option<Begun>>,
    stopped: AtomicBool,
}

impl BeginAgain {
    /// Of a node whose clients connect at `control`; `begun` says how it has begun, if it has begun
    /// again and its new state is not proved.
    ///
    /// # Errors
    /// When there is no thread.
    pub(crate) fn start(node: &Arc<Node>, control: SocketAddr, begun: Option<Begun>) -> Result<Self, Failure> {
        let shared = Arc::new(Shared {
            control,
            outlook: Mutex::new(outlook(None, begun.as_ref())),
            due: Mutex::default(),
            begun: Mutex::new(begun),
            stopped: AtomicBool::new(false),
        });
        let (this, node) = (Arc::clone(&shared), Arc::downgrade(node));
        thread::Builder::new().name("begin-again".to_owned()).spawn(move || this.run(&node))?;
        Ok(Self(shared))
    }

    /// Where it is to join, as soon as it begins again.
    pub(crate) fn due(&self) -> Option<String> {
        lock(&self.0.due).clone()
    }

    /// What the status says.
    pub(crate) fn outlook(&self) -> Outlook {
        lock(&self.0.outlook).clone()
    }

    /// An operator wants it.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(crate) fn ask_for(&self, node: &Node, force: bool) -> Result<String, String> {
        match node.role() {
            Role::Standby => {}
            Role::Primary => {
                return Err("this node is the primary: promote a standby first (freshet promote with the address of \
                            that one); this node follows it then, and can begin again"
                    .into());
            }
            Role::Mirror => return Err("this node is a mirror: see freshet refill".into()),
            Role::Failed | Role::Stopped => return Err("this node follows no other".into()),
        }
        if node.config().domain == Domain::None {
            return Err("this node keeps nothing on disk: start it again".into());
        }
        if !force && node.proof().reason().is_none() {
            return Err(
                "nothing speaks against the state of this node; with --force it begins again all the same".into()
            );
        }
        begin_again::check(node.config()).map_err(|cause| format!("{CANNOT}: {cause}"))?;
        // If that may be, nothing relies on this node any more.
        let asked = node.may_begin_again();
        let (_, from, verdict) =
            asked.ok_or("this node follows no primary at the moment, from which it could begin again")?;
        if let Verdict::Never(why) = verdict {
            return Err(why);
        }
        *lock(&self.0.due) = Some(from.clone());
        Ok(from)
    }

    /// It asks nobody any more.
    pub(crate) fn stop(&self) {
        self.0.stopped.store(true, Ordering::SeqCst);
    }
}

fn outlook(doubt_leads_to: Option<String>, begun: Option<&Begun>) -> Outlook {
    Outlook { doubt_leads_to, kept_aside: begun.map(|begun| begun.aside.clone()).unwrap_or_default() }
}

impl Shared {
    fn run(&self, node: &Weak<Node>) {
        let (mut warned, mut stuck) = (None, false);
        while let Some(node) = node.upgrade().filter(|_| !self.stopped.load(Ordering::SeqCst)) {
            if !stuck && let Err(cause) = self.finish(&node) {
                tracing::error!(%cause, "what this node had before it began again cannot be removed now");
                stuck = true;
            }
            let leads_to = node.proof().withdrawn().map(|_| self.of_doubt(&node));
            if leads_to != warned {
                if let Some(leads_to) = &leads_to {
                    tracing::warn!("the state of this node is in doubt: {leads_to}");
                }
                warned.clone_from(&leads_to);
            }
            *lock(&self.outlook) = outlook(leads_to, lock(&self.begun).as_ref());
            drop(node);
            thread::sleep(LOOK);
        }
    }

    /// Removes what was moved aside, if the new state was found equal to the primary's. One that
    /// has begun again as a mirror compares nothing: there all that it has is read first.
    fn finish(&self, node: &Node) -> std::io::Result<()> {
        let mut begun = lock(&self.begun);
        let Some(old) = &*begun else { return Ok(()) };
        let was_rehearsed = || matches!(node.status().role, RoleStatus::Mirror { own } if own.rehearsed.is_some());
        let mark = node.state_proof().equal_at.filter(|_| node.proof().reason().is_none());
        if mark.is_some() || was_rehearsed() {
            old.finish(&node.config().directory)?;
            let mark = mark.map(|mark| mark.0);
            tracing::info!(mark, removed = ?old.aside, "the new state of this node is that of its primary");
            *begun = None;
        }
        Ok(())
    }

    /// What comes of a doubt that has consequences.
    fn of_doubt(&self, node: &Node) -> String {
        let here = format!("node {} at {}", node.id(), node.address());
        if node.role() != Role::Standby {
            if !node.sweep_status().log_damage.is_empty() {
                return "this node continues, since no other does its work, and its log is damaged, too: do not start \
                        it again before freshet promote has made another one the primary; then keep its directory \
                        aside, and let it join with a new one"
                    .into();
            }
            return "this node continues, since no other does its work: promote a standby that is not in doubt (freshet \
                    promote with the address of that one), and this node follows it"
                .into();
        }
        let (there, from, verdict) = match self.verdict(node) {
            Some((primary, from, verdict)) => (format!("the primary {primary} at {from}"), from, verdict),
            None => return "begins again as soon as it follows a primary that lets it".into(),
        };
        let control = self.control;
        match verdict {
            Verdict::Begin => {
                *lock(&self.due) = Some(from);
                format!("begins again from {there}")
            }
            Verdict::Wait(why) => {
                format!("begins again from {there}, but not yet: {why}; freshet begin-again {control} does so at once")
            }
            Verdict::Never(why) => {
                format!("waits for an operator: {why}; freshet promote {control} --force makes this node the primary")
            }
            Verdict::Operator(why) => format!(
                "waits for an operator: {why}. Either {there} is right: freshet begin-again {control}; or this {here} \
                 is: freshet promote {control} --force"
            ),
        }
    }

    fn verdict(&self, node: &Node) -> Option<(freshet_base::NodeId, String, Verdict)> {
        let operator = |why: &str| {
            let (primary, from) = node.follows()?;
            Some((primary, from, Verdict::Operator(why.into())))
        };
        if lock(&self.begun).is_some() {
            return operator("it has begun again already, and was not found equal to its primary since");
        }
        if node.config().domain == Domain::None {
            return operator("it keeps nothing on disk, and joins with nothing when it is started again");
        }
        if let Err(cause) = begin_again::check(node.config()) {
            return operator(&format!("{CANNOT}: {cause}"));
        }
        node.may_begin_again()
    }
}
