//! One round: a cluster is founded and loaded, its nodes lose things and are started again, and the
//! judges look at what came of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    ledger::{Id, Ledger, Sight},
    nodes::Nodes,
    plan::{Fate, Form, Kind, Middle, Plan, name},
    promise,
};
use freshet::sql_client::{Session, SqlFailure};
use freshet::{Failure, interruption::Interruption};

/// How long a cluster of new nodes may take to be whole.
const FOUNDING: Duration = Duration::from_secs(60);
/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a load may take.
const LOAD: Duration = Duration::from_secs(20);
/// How long nodes are under load when they end.
const UNDER_LOAD: Duration = Duration::from_secs(1);
/// How long the next start waits for the one before.
const UP: Duration = Duration::from_secs(3);
/// How long a refused promotion is tried again.
const PROMOTE: Duration = Duration::from_secs(4);
/// How long one may take.
const PROMOTED: Duration = Duration::from_secs(20);
/// For so long nodes are watched when all have been started.
const WATCH: Duration = Duration::from_secs(4);
/// When something must be acknowledged, it must be within this time.
const HANGS: Duration = Duration::from_secs(25);
/// Commits of a load.
const COMMITS: usize = 40;
/// Clients of a load.
const CLIENTS: i64 = 3;
/// The superuser of a new database.
const USER: &str = "freshet";

/// What a round came to.
pub(super) struct Outcome {
    pub(super) finds: Vec<String>,
    pub(super) story: String,
    /// Commits that were acknowledged before and after the losses.
    pub(super) acknowledged: (usize, usize),
    pub(super) took: Duration,
    /// Somebody acknowledged something in the end.
    pub(super) serves: bool,
}

struct Round<'a> {
    plan: &'a Plan,
    ledger: &'a Ledger,
    nodes: &'a Nodes<'a>,
    interruption: &'a Interruption,
    /// What the copy of each node's directory has.
    copied: Vec<BTreeSet<Id>>,
    over: AtomicBool,
}

/// Runs a round with the nodes' directories below `directory`.
pub(super) fn run(
    plan: &Plan,
    directory: &Path,
    ip: Ipv4Addr,
    aloud: bool,
    interruption: &Interruption,
) -> Result<Outcome, Failure> {
    let ledger = Ledger::new(plan.members.len(), aloud);
    ledger.log(&format!("seed {}: {plan}", plan.seed));
    let nodes = Nodes::new(plan, &ledger, directory, ip)?;
    let copied = vec![BTreeSet::new(); plan.members.len()];
    let over = AtomicBool::new(false);
    let mut round = Round { plan, ledger: &ledger, nodes: &nodes, interruption, copied, over };
    let losses = round.until_the_losses()?;
    round.afterwards(losses)?;
    let finds = std::mem::take(&mut ledger.book().finds);
    let book = ledger.book();
    let before = book.acks.values().filter(|ack| ack.ended < losses).count();
    let after = book.sights.len();
    drop(book);
    let mut story = ledger.story();
    if !finds.is_empty() {
        nodes.keep_all_messages();
        story += &nodes.describe_all();
    }
    Ok(Outcome { finds, story, acknowledged: (before, after), took: ledger.now(), serves: after > 0 })
}

/// What a row of the journal says beside its id, to be found in files.
fn mark(id: Id) -> String {
    format!("<mark {id:06}>")
}

/// A commit of one row on a node.
fn write(session: &mut Session, id: Id, client: i64, plan: &Plan) -> Result<(), SqlFailure> {
    // Of one length where a node may take another's block for the next one of its own log.
    let length = if plan.kind == Kind::Twice { 0 } else { id as usize % 5 * 100 };
    let padding = "x".repeat(length);
    let reply = session.run(&format!(
        "BEGIN; INSERT INTO journal VALUES ({id}, '{}{padding}'); \
         UPDATE counter SET n = n + 1 WHERE id = {client}; COMMIT",
        mark(id)
    ))?;
    if reply.tags.last().map(String::as_str) == Some("COMMIT") {
        return Ok(());
    }
    Err(SqlFailure::Server { code: "40001".to_owned(), message: format!("{:?}", reply.tags), fatal: false })
}

/// The rows of a node.
fn rows(session: &mut Session) -> Result<BTreeMap<Id, String>, SqlFailure> {
    let reply = session.run("SELECT id, note FROM journal")?;
    let row = |row: Vec<String>| Some((row.first()?.parse().ok()?, row.get(1)?.clone()));
    Ok(reply.rows.into_iter().filter_map(row).collect())
}

fn is_missing_table(failure: &SqlFailure) -> bool {
    matches!(failure, SqlFailure::Server { code, .. } if code == "42P01")
}

impl Round<'_> {
    fn all(&self) -> std::ops::Range<usize> {
        0..self.plan.members.len()
    }

    /// From the founding to the losses; returns when these were.
    fn until_the_losses(&mut self) -> Result<Duration, Failure> {
        let there: Vec<usize> = self.all().filter(|node| !self.plan.members[*node].comes_late).collect();
        for node in &there {
            self.nodes.found(*node, FOUNDING)?;
        }
        self.whole(&there)?;
        let mut session = Session::open(&self.nodes.sql(0), USER, FOUNDING)?;
        session.run("CREATE TABLE journal (id bigint PRIMARY KEY, note text)")?;
        session.run("CREATE TABLE counter (id bigint PRIMARY KEY, n bigint NOT NULL)")?;
        session.run("INSERT INTO counter VALUES (0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0)")?;
        drop(session);
        self.load(COMMITS / 2)?;
        self.whole(&there)?;
        self.copies()?;
        self.whole(&there)?;
        let mut working = there;
        match self.plan.middle {
            Middle::Nothing => {}
            Middle::Restart => {
                self.nodes.kill(0);
                self.nodes.start(0, None, &[])?;
                self.whole(&working)?;
            }
            Middle::Promote(node) => {
                self.nodes.kill(0);
                self.promote(node, FOUNDING);
                self.nodes.start(0, None, &[])?;
                self.whole(&working)?;
            }
        }
        if let Some(node) = self.plan.lags {
            self.nodes.kill(node);
            let is_relay = self.plan.members[node].form == Form::Relay;
            let follows = |other: usize| is_relay && self.plan.members[other].form == Form::BelowRelay;
            working.retain(|other| *other != node && !follows(*other));
        }
        self.load(COMMITS)?;
        self.whole(&working)?;
        Ok(self.crash())
    }

    /// Copies the directories that are put back later.
    fn copies(&mut self) -> Result<(), Failure> {
        for node in self.all() {
            let member = self.plan.members[node];
            if member.comes_late || !matches!(member.fate, Fate::SetBack | Fate::OlderLog) {
                continue;
            }
            let now = self.ledger.now();
            {
                let mut book = self.ledger.book();
                book.copied[node] = Some(now);
                self.copied[node] = book.acks.keys().copied().collect();
            }
            if self.plan.cold {
                self.nodes.kill(node);
                self.nodes.take_copy(node)?;
                self.nodes.start(node, self.nodes.joins_first(node), &[])?;
                let there: Vec<usize> = self.all().filter(|node| self.nodes.is_at_work(*node)).collect();
                self.whole(&there)?;
            } else {
                // It is being written to.
                thread::scope(|scope| {
                    let load = scope.spawn(|| self.load(COMMITS / 4));
                    let copied = self.nodes.take_copy(node);
                    load.join().map_err(|_| Failure::new("a client panicked"))??;
                    copied
                })?;
            }
        }
        Ok(())
    }

    /// Nodes end, the primary first, or it stands still. Returns the time.
    fn crash(&self) -> Duration {
        let (count, goal) = (|| self.ledger.book().acks.len(), self.ledger.book().acks.len() + COMMITS / 4);
        thread::scope(|scope| {
            if self.plan.under_load {
                scope.spawn(|| self.try_load(COMMITS, UNDER_LOAD));
                self.wait(UNDER_LOAD, || count() >= goal);
            }
            if self.plan.kind == Kind::Silent {
                self.nodes.stop(0);
            }
            for node in self.all() {
                if !self.plan.members[node].lives && self.nodes.is_at_work(node) {
                    self.nodes.kill(node);
                }
            }
        });
        // The set is still the same. Who has what else was acknowledged is not known.
        let mut book = self.ledger.book();
        let set = book.acks.values().map(|ack| ack.set).rfind(|set| *set != 0).unwrap_or(0);
        book.acks.values_mut().filter(|ack| ack.set == 0).for_each(|ack| ack.set = set);
        drop(book);
        self.ledger.now()
    }

    /// Some clients write until this number of commits is acknowledged.
    fn load(&self, commits: usize) -> Result<(), Failure> {
        if self.try_load(commits, LOAD) {
            return Ok(());
        }
        self.interruption.check()?;
        Err(Failure::new(format!("nothing commits under load: {}", self.nodes.describe_all())))
    }

    /// The same for a while. Says whether they were acknowledged.
    fn try_load(&self, commits: usize, patience: Duration) -> bool {
        let count = || self.ledger.book().acks.len();
        let (goal, end) = (count() + commits, Instant::now() + patience);
        let continues = &|| count() < goal && Instant::now() < end && self.interruption.check().is_ok();
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                scope.spawn(move || {
                    while continues() {
                        for node in self.all() {
                            self.write_on(node, client, continues);
                        }
                        thread::sleep(Duration::from_millis(10));
                    }
                });
            }
        });
        count() >= goal
    }

    /// Writes on a node as long as that goes, if it takes writers.
    fn write_on(&self, node: usize, client: i64, continues: &dyn Fn() -> bool) {
        if !self.nodes.is_at_work(node) {
            return;
        }
        let Ok(mut session) = Session::open(&self.nodes.sql(node), USER, PATIENCE) else { return };
        while session.takes_writers() && continues() {
            let (id, begun) = (self.ledger.next(), self.ledger.now());
            match write(&mut session, id, client, self.plan) {
                Ok(()) => self.ledger.acknowledged(id, node, begun),
                Err(_) => return,
            }
        }
    }

    /// Waits until these nodes are in sync with one primary, and have everything; then notes what
    /// their disks have.
    fn whole(&self, nodes: &[usize]) -> Result<(), Failure> {
        let end = Instant::now() + FOUNDING;
        loop {
            self.interruption.check()?;
            for node in nodes {
                self.nodes.look_after(*node);
            }
            match self.is_whole(nodes) {
                Ok(()) => break,
                Err(why) if Instant::now() > end => {
                    let all = self.nodes.describe_all();
                    return Err(Failure::new(format!("the cluster does not become whole: {why}\n{all}")));
                }
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
        let book = self.ledger.book();
        let all: BTreeSet<Id> = book.acks.keys().copied().collect();
        let set = nodes.iter().fold(0, |set, node| set | 1 << node);
        drop(book);
        nodes.iter().for_each(|node| self.ledger.answers(*node, true));
        let mut book = self.ledger.book();
        for node in nodes {
            book.holds[*node].clone_from(&all);
        }
        for ack in book.acks.values_mut().filter(|ack| ack.set == 0) {
            ack.set = set;
        }
        Ok(())
    }

    fn is_whole(&self, nodes: &[usize]) -> Result<(), String> {
        let status = |node: usize| self.nodes.status(node).ok_or_else(|| format!("{} does not answer", name(node)));
        let mut primary = None;
        for node in nodes {
            let status = status(*node)?;
            if status["role"] == "primary" && status["standing"]["standing"] != "fenced" {
                primary = Some(status);
            } else if self.plan.members[*node].form == Form::BelowRelay {
                let visible = self.shown(*node).map_or(0, |shown| shown.len());
                let all = self.ledger.book().acks.len();
                if visible < all {
                    return Err(format!("{} shows {visible} of {all} rows", name(*node)));
                }
            }
        }
        let primary = primary.ok_or("there is no primary")?;
        primary["cluster"].as_str().unwrap_or_default().clone_into(&mut self.ledger.book().cluster);
        let standbys = primary["standbys"].as_array().map_or(&[][..], Vec::as_slice);
        let has_all = |standby: &&Value| {
            let sync = standby["in_sync"] == true || standby["synchronous"] == false;
            sync && standby["connected"] == true && standby["ack_lag_bytes"] == 0
        };
        let count = standbys.iter().filter(has_all).count();
        let direct = nodes.iter().filter(|node| self.plan.members[**node].form != Form::BelowRelay).count();
        if count + 1 < direct || primary["set_pending"].is_array() {
            return Err(format!("{count} of {} standbys are in sync: {primary}", direct - 1));
        }
        Ok(())
    }

    /// The rows that a node shows; nothing if it does not answer.
    fn shown(&self, node: usize) -> Option<BTreeMap<Id, String>> {
        let mut session = Session::open(&self.nodes.sql(node), USER, PATIENCE).ok()?;
        match rows(&mut session) {
            Err(failure) if is_missing_table(&failure) => Some(BTreeMap::new()),
            shown => shown.ok(),
        }
    }

    /// Tries to make a node the primary, for a while; says whether it is.
    fn promote(&self, node: usize, patience: Duration) -> bool {
        let mut logged = BTreeSet::new();
        let end = Instant::now() + patience;
        while !self.promote_once(node, &mut logged) {
            if Instant::now() > end || self.interruption.check().is_err() {
                return false;
            }
            thread::sleep(Duration::from_millis(100));
        }
        true
    }

    /// Tries to make a node the primary. Logs what is not in `logged` yet.
    fn promote_once(&self, node: usize, logged: &mut BTreeSet<String>) -> bool {
        let (done, report) = match self.nodes.promote(node, PROMOTED) {
            Ok(term) => (true, format!("promote {}: it is the primary of term {term}", name(node))),
            Err(why) => (false, format!("promote {}: refused: {why}", name(node))),
        };
        if logged.insert(report.clone()) {
            self.ledger.log(&report);
        }
        done
    }

    /// Losses, starts, and what comes of them.
    fn afterwards(&self, losses: Duration) -> Result<(), Failure> {
        for node in self.all() {
            let member = self.plan.members[node];
            if !member.comes_late {
                self.nodes.lose(node, &self.copied[node])?;
            }
        }
        thread::scope(|scope| {
            let _over = Over(&self.over);
            for node in self.all() {
                scope.spawn(move || self.watch(node));
            }
            self.restarts()?;
            self.settle()
        })?;
        self.interruption.check()?;
        self.judge(losses);
        Ok(())
    }

    /// Starts nodes in their order, and promotes one of them on the way.
    fn restarts(&self) -> Result<(), Failure> {
        let plan = self.plan;
        let early = plan.order.len() - plan.late;
        for (number, node) in plan.order.iter().enumerate() {
            if number == early {
                self.before_the_late()?;
            }
            if plan.kind == Kind::Refused {
                self.refused(*node)?;
                continue;
            }
            self.nodes.start(*node, self.nodes.joins_again(*node), &[])?;
            if plan.waits || number + 1 == early {
                self.wait(UP, || self.ledger.book().up[*node].last().is_some_and(|(_, until)| until.is_none()));
            }
        }
        if plan.late == 0 {
            self.before_the_late()?;
        }
        if let Some(node) = plan.dies {
            self.nodes.start(node, self.nodes.joins_again(node), &[])?;
        }
        Ok(())
    }

    /// What happens before the last nodes are started.
    fn before_the_late(&self) -> Result<(), Failure> {
        let Some((_, node)) = self.plan.promote else {
            if self.plan.late > 0 {
                self.try_load(2 * COMMITS, WATCH);
            }
            return Ok(());
        };
        if let Some(dying) = self.plan.dies {
            // It has let them in.
            self.wait(UP, || false);
            self.nodes.kill(dying);
        }
        let silent = self.plan.kind == Kind::Silent;
        // One of them stands still, all others are there with all that they had.
        let must = silent && self.plan.order.is_empty();
        let promoted = self.promote(node, if must { HANGS } else { PROMOTE });
        if must && !promoted {
            self.ledger
                .found(format!("HANGS: no promotion succeeds within {} s beside a silent primary", HANGS.as_secs()));
        } else if must {
            self.must_acknowledge("a standby was promoted beside a silent primary");
        } else if promoted {
            self.wait(WATCH, || self.ledger.book().sights.iter().any(|sight| sight.by == node));
        }
        if silent {
            self.nodes.go_on(0);
        }
        Ok(())
    }

    /// A node that its cluster does not let in; then it is started alone.
    fn refused(&self, node: usize) -> Result<(), Failure> {
        self.nodes.start(node, Some(0), &["--log-buffer-bytes", "65536"])?;
        self.wait(UP, || {
            let status = self.nodes.status(node);
            status
                .is_some_and(|status| status["link"]["last_failure"].is_string() || status["link"]["link"] == "failed")
        });
        self.nodes.kill(node);
        self.nodes.start(node, None, &[])
    }

    /// Waits until something is so, for a while; says whether it is.
    fn wait(&self, patience: Duration, is_so: impl Fn() -> bool) -> bool {
        let end = Instant::now() + patience;
        while !is_so() {
            if Instant::now() > end || self.interruption.check().is_err() {
                return false;
            }
            thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// Something is acknowledged from now on, or that is a find.
    fn must_acknowledge(&self, after: &str) {
        let now = self.ledger.now();
        if !self.wait(HANGS, || self.ledger.book().sights.iter().any(|sight| sight.begun > now)) {
            self.ledger.found(format!("HANGS: nothing is acknowledged within {} s after {after}", HANGS.as_secs()));
        }
    }

    /// All are started: somebody serves, or an operator promotes the first node that lets them.
    fn settle(&self) -> Result<(), Failure> {
        let now = self.ledger.now();
        let serves = || self.ledger.book().sights.iter().any(|sight| sight.table && sight.begun > now);
        if !self.wait(WATCH, serves) {
            self.ledger.log("nobody acknowledges anything: each node is promoted in turn");
            let mut logged = BTreeSet::new();
            let end = Instant::now() + HANGS;
            loop {
                let promoted = self.all().any(|node| self.promote_once(node, &mut logged));
                let patience = if promoted { WATCH } else { Duration::from_millis(300) };
                if self.wait(patience, serves) || !self.plan.must_serve() {
                    break;
                }
                if Instant::now() > end {
                    let within = (WATCH + HANGS).as_secs();
                    self.ledger.found(format!(
                        "HANGS: nothing is acknowledged within {within} s, though enough nodes have all that they had"
                    ));
                    break;
                }
                self.interruption.check()?;
            }
        }
        // Those that were started last have had their time.
        self.wait(WATCH, || false);
        self.interruption.check()?;
        Ok(())
    }

    /// Looks after a node until the end, and writes on it whenever it takes writers.
    fn watch(&self, node: usize) {
        let mut serves: Option<Session> = None;
        let mut cluster = String::new();
        // Relaxed: it ends some time soon.
        while !self.over.load(Ordering::Relaxed) && self.interruption.check().is_ok() {
            thread::sleep(Duration::from_millis(if serves.is_some() { 30 } else { 100 }));
            if !self.nodes.look_after(node) {
                serves = None;
                continue;
            }
            let answers = self.ledger.book().up[node].last().is_some_and(|(_, until)| until.is_none());
            if !answers {
                let status = self.nodes.status(node);
                if status.is_some_and(|status| status["role"] != "starting") {
                    self.ledger.answers(node, true);
                }
                continue;
            }
            let is_old = serves.is_some();
            let session = serves.take().or_else(|| Session::open(&self.nodes.sql(node), USER, PATIENCE).ok());
            let Some(mut session) = session.filter(Session::takes_writers) else { continue };
            if !is_old {
                let status = self.nodes.status(node).unwrap_or_default();
                status["cluster"].as_str().unwrap_or_default().clone_into(&mut cluster);
            }
            if self.probe(node, &mut session, &cluster).is_ok() {
                serves = Some(session);
            }
        }
    }

    /// Writes on a node, and if that is acknowledged looks at what it shows.
    fn probe(&self, node: usize, session: &mut Session, cluster: &str) -> Result<(), SqlFailure> {
        let (id, begun) = (self.ledger.next(), self.ledger.now());
        let mut shown = BTreeMap::new();
        let mut table = true;
        match write(session, id, 3 + node as i64 % 3, self.plan) {
            Ok(()) => {
                self.ledger.acknowledged(id, node, begun);
                shown = rows(session)?;
            }
            Err(failure) if is_missing_table(&failure) => {
                session.run("ROLLBACK")?;
                session.run("CREATE TABLE IF NOT EXISTS stray (id bigint)")?;
                session.run(&format!("INSERT INTO stray VALUES ({id})"))?;
                table = false;
            }
            Err(failure) => return Err(failure),
        }
        let ended = self.ledger.now();
        let mut book = self.ledger.book();
        let missing: Vec<Id> = book.before(begun).filter(|id| !shown.contains_key(id)).collect();
        let first = !book.sights.iter().any(|sight| sight.by == node);
        let lacks = missing.len();
        book.sights.push(Sight { by: node, begun, ended, missing, table, cluster: cluster.to_owned() });
        drop(book);
        if first {
            let table = if table { "" } else { ", not even the table" };
            self.ledger.log(&format!("{} acknowledges a commit, and lacks {lacks} others{table}", name(node)));
        }
        Ok(())
    }

    fn judge(&self, losses: Duration) {
        let finds = {
            let book = self.ledger.book();
            let mut finds = promise::lost(self.plan, &book, losses);
            finds.extend(promise::two_primaries(&book, losses));
            finds
        };
        finds.into_iter().for_each(|find| self.ledger.found(find));
        self.same_rows();
        self.destroyed(losses);
        for node in self.all() {
            let rows = self.shown(node).map_or_else(|| "no".to_owned(), |shown| shown.len().to_string());
            self.ledger.log(&format!("in the end {} {}, and shows {rows} rows", name(node), self.nodes.brief(node)));
        }
    }

    /// Nodes that follow one another without complaint show the same rows.
    fn same_rows(&self) {
        let end = Instant::now() + WATCH;
        loop {
            let Some(differs) = self.differ() else { return };
            if Instant::now() > end {
                self.ledger.found(differs);
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn differ(&self) -> Option<String> {
        let statuses: Vec<Option<Value>> = self.all().map(|node| self.nodes.status(node)).collect();
        let field = |node: usize, key: &str| statuses[node].as_ref().map_or(Value::Null, |status| status[key].clone());
        let primary = self.all().find(|node| field(*node, "role") == "primary")?;
        let ours = self.shown(primary)?;
        for node in self.all().filter(|node| *node != primary && field(*node, "role") == "standby") {
            let follows = field(node, "link")["link"] == "following";
            let same = ["cluster", "term"].iter().all(|key| field(node, key) == field(primary, key));
            let caught_up = field(node, "visible_lag")["bytes"] == 0;
            if !follows || !same || !caught_up {
                continue;
            }
            let Some(theirs) = self.shown(node) else { continue };
            let only = |one: &BTreeMap<Id, String>, other: &BTreeMap<Id, String>| {
                one.iter().filter(|(id, note)| other.get(id) != Some(note)).map(|(id, _)| *id).collect::<Vec<_>>()
            };
            let (more, less) = (only(&theirs, &ours), only(&ours, &theirs));
            if !more.is_empty() || !less.is_empty() {
                return Some(format!(
                    "TWO STATES: {} follows {} in the same term, shows {} rows more, as {:?}, and {} less, as {:?}",
                    name(node),
                    name(primary),
                    more.len(),
                    more.first(),
                    less.len(),
                    less.first()
                ));
            }
        }
        None
    }

    /// What an intact disk had is still there, or in a file that the node's status names.
    fn destroyed(&self, losses: Duration) {
        let (holds, acknowledged) = {
            let book = self.ledger.book();
            let old: BTreeSet<Id> = book.acks.iter().filter(|(_, ack)| ack.ended < losses).map(|(id, _)| *id).collect();
            (book.holds.clone(), old)
        };
        for node in self.all() {
            let member = self.plan.members[node];
            if member.fate != Fate::Kept || member.form == Form::Mirror || member.comes_late {
                continue;
            }
            let status = self.nodes.status(node).unwrap_or(Value::Null);
            if !self.nodes.is_at_work(node) || !matches!(status["role"].as_str(), Some("primary" | "standby")) {
                continue;
            }
            let shown = self.shown(node);
            let is_shown = |id: &Id| shown.as_ref().is_some_and(|shown| shown.contains_key(id));
            let gone: Vec<Id> = holds[node].intersection(&acknowledged).filter(|id| !is_shown(id)).copied().collect();
            let Some(last) = gone.last() else { continue };
            let follows = status["link"]["link"] == "following" && status["visible_lag"]["bytes"] == 0;
            let settled = status["role"] == "primary" || follows;
            // What shows nothing, or does not follow, may have it in its log as ever.
            let aside = settled && shown.is_some();
            let files = self.nodes.files_with(node, mark(*last).as_bytes(), aside);
            let text = status.to_string();
            let named =
                files.iter().any(|file| text.contains(&*file.file_name().unwrap_or_default().to_string_lossy()));
            if files.is_empty() || (aside && !named) {
                self.ledger.found(format!(
                    "DESTROYED: {} had {} acknowledged commits that it does not show, as {last}; its status {} the \
                     files that have it: {files:?}",
                    name(node),
                    gone.len(),
                    if named { "names" } else { "does not name" }
                ));
            }
        }
    }
}

/// Ends those who watch.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
