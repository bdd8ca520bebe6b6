//! Clients whose COMMIT is cut ask another node what became of it: by the token that they have
//! asked for within the transaction. Their primary is killed, or stands still and continues as
//! if nothing had happened.
//!
//! A few rounds; FRESHET_ROUNDS=50 for as many, FRESHET_SEED for the same ones.

mod common;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use common::{Connected, SOON, connect, create_journal, in_sync, insert, missing, random, start, status, wait_until};
use freshet::{
    children::NodeProcess,
    sql_client::{Reply, Session, SqlFailure},
};
use freshet_base::Consent;
use freshet_workloads::journal::Mark;

const NAMES: [&str; 3] = ["a", "b", "c"];
const CLIENTS: u64 = 12;

/// What a client knows of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// None yet, or its COMMIT was cut.
    Open,
    /// It was told that the transaction is committed.
    Committed,
    /// It has not said COMMIT, or was told that nothing was done.
    Refused,
}

/// Transactions by their tokens, as their clients know them.
type Tokens = Arc<Mutex<HashMap<String, (Mark, Answer)>>>;

/// Commits one mark after the other until the session ends. Every transaction's token is noted
/// before its COMMIT.
fn client(mut session: Session, number: u64, tokens: &Tokens) {
    for sequence in 1.. {
        let mark = Mark { client: number, sequence };
        let Ok(Reply { rows, .. }) = session.run("BEGIN; SELECT freshet_transaction_token()") else { return };
        let token = rows[0][0].clone();
        let note = |answer| tokens.lock().unwrap().insert(token.clone(), (mark, answer));
        note(Answer::Refused);
        // Some in a message of its own, and some before it, which is cut more often.
        let statements =
            if sequence % 3 == 0 { vec![insert(mark), "COMMIT".to_owned()] } else { vec![insert(mark) + "; COMMIT"] };
        for statement in statements {
            if statement.ends_with("COMMIT") {
                note(Answer::Open);
            }
            match session.run(&statement) {
                Ok(_) if statement.ends_with("COMMIT") => drop(note(Answer::Committed)),
                Ok(_) => (),
                Err(failure @ SqlFailure::Server { fatal: false, .. }) if !failure.is_open() => {
                    note(Answer::Refused);
                    if session.run("ROLLBACK").is_err() {
                        return;
                    }
                    break;
                }
                Err(_) => return,
            }
        }
    }
}

fn load(node: &NodeProcess, first: u64, tokens: &Tokens) -> Vec<JoinHandle<()>> {
    let socket = node.ready().sql_socket.as_deref().unwrap();
    let begin = |number| {
        let (session, tokens) = (Session::open(socket, "freshet", 2 * SOON).unwrap(), Arc::clone(tokens));
        std::thread::spawn(move || client(session, number, &tokens))
    };
    (first..first + CLIENTS).map(begin).collect()
}

fn wait_for(tokens: &Tokens, more: usize) {
    let deadline = Instant::now() + SOON;
    let committed = || tokens.lock().unwrap().values().filter(|(_, answer)| *answer == Answer::Committed).count();
    let from = committed();
    while committed() < from + more {
        assert!(Instant::now() < deadline, "nothing is committed any more");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a node answers to all of these.
fn ask(node: &Connected, tokens: &[String]) -> Vec<String> {
    let mut answers = Vec::with_capacity(tokens.len());
    for some in tokens.chunks(200) {
        let values: Vec<_> = some.iter().map(|token| format!("('{token}'::uuid)")).collect();
        let values = values.join(", ");
        let sql =
            format!("SELECT coalesce(freshet_transaction_outcome(token), 'NULL') FROM (VALUES {values}) AS t (token)");
        answers.extend(node.run(&sql, SOON).unwrap().rows.into_iter().map(|row| row[0].clone()));
    }
    assert_eq!(answers.len(), tokens.len());
    answers
}

/// The same, when the node knows: a standby hears of it from the new primary.
fn know(node: &Connected, tokens: &[String]) -> Vec<String> {
    let deadline = Instant::now() + SOON;
    loop {
        let answers = ask(node, tokens);
        if !answers.iter().any(|answer| answer == "unknown") {
            return answers;
        }
        assert!(Instant::now() < deadline, "it does not know");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Everything that a node answers is so: what clients were told, and which rows are there. What was
/// answered before is answered still.
fn check(node: &Connected, tokens: &Tokens, outcomes: &mut HashMap<String, String>, when: &str) {
    let known = tokens.lock().unwrap().clone();
    let asked: Vec<String> = known.keys().cloned().collect();
    let answers = know(node, &asked);
    let marks: Vec<Mark> = known.values().map(|(mark, _)| *mark).collect();
    let missing: HashSet<Mark> = missing(node, &marks).into_iter().collect();
    for (token, is) in asked.iter().zip(answers) {
        let (mark, answer) = known[token];
        let expected = if missing.contains(&mark) { "aborted" } else { "committed" };
        assert_eq!(is, expected, "{when}: {token} of {mark:?}, {answer:?}");
        match answer {
            Answer::Open => (),
            Answer::Committed => assert_eq!(is, "committed", "{when}: {mark:?} was acknowledged"),
            Answer::Refused => assert_eq!(is, "aborted", "{when}: {mark:?} was refused"),
        }
        let before = outcomes.entry(token.clone()).or_insert_with(|| is.clone());
        assert_eq!(*before, is, "{when}: {mark:?} has changed");
    }
}

/// Blocks until one of these nodes leads, and returns which.
fn led(nodes: &[Option<NodeProcess>]) -> usize {
    let deadline = Instant::now() + SOON;
    loop {
        let leads = |node: &Option<NodeProcess>| node.as_ref().is_some_and(|node| status(node)["role"] == "primary");
        if let Some(at) = nodes.iter().position(leads) {
            return at;
        }
        assert!(Instant::now() < deadline, "no node leads");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Three nodes take turns as the primary, under load; those that join have flags of their own.
fn turns(more: &[&str], joins: &[&str], otherwise: u64) {
    let rounds = std::env::var("FRESHET_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(otherwise);
    let mut random = random();
    let directory = tempfile::tempdir().unwrap();
    let flags = [&["--safety", "quorum:2"], more].concat();
    let path = |index: usize| directory.path().join(NAMES[index]);
    let join = |index: usize, primary: &NodeProcess| {
        start(&path(index), &[&["--join", &primary.ready().listen], &flags[..], joins].concat())
    };
    let first = start(&path(0), &flags);
    let others = [1, 2].map(|index| join(index, &first));
    let mut nodes: Vec<Option<NodeProcess>> = [first].into_iter().chain(others).map(Some).collect();
    let (tokens, mut outcomes, mut leads) = (Tokens::default(), HashMap::new(), 0);
    create_journal(&connect(nodes[0].as_ref().unwrap()));
    for round in 0..rounds {
        let when = format!("round {round}");
        let mut old = nodes[leads].take().unwrap();
        wait_until(&old, "two standbys in sync", |status| in_sync(status) == 2);
        let clients = load(&old, 100 * round, &tokens);
        wait_for(&tokens, random.within(100, 600) as usize);
        let killed = random.within(0, 1) == 0;
        if killed {
            old.kill();
        } else {
            old.pause();
        }
        let heir = match more.contains(&"automatic") {
            true => led(&nodes),
            false => {
                let heir = (leads + random.within(1, 2) as usize) % 3;
                connect(nodes[heir].as_ref().unwrap()).promote(Consent::Nothing, SOON).unwrap();
                heir
            }
        };
        let new = connect(nodes[heir].as_ref().unwrap());
        // At once, while clients of a primary that stands still wait for it.
        check(&new, &tokens, &mut outcomes, &format!("{when}, at the new primary"));
        let third = nodes[3 - leads - heir].as_ref().unwrap();
        check(&connect(third), &tokens, &mut outcomes, &format!("{when}, at a standby"));
        if !killed {
            old.resume();
        }
        clients.into_iter().for_each(|client| client.join().unwrap());
        check(&new, &tokens, &mut outcomes, &format!("{when}, afterwards"));
        old.kill();
        drop(old);
        let back = join(leads, nodes[heir].as_ref().unwrap());
        wait_until(nodes[heir].as_ref().unwrap(), "everybody in sync again", |status| in_sync(status) == 2);
        check(&connect(&back), &tokens, &mut outcomes, &format!("{when}, at the old primary"));
        (nodes[leads], leads) = (Some(back), heir);
    }
    let known = tokens.lock().unwrap();
    let open = known.iter().filter(|(_, (_, answer))| *answer == Answer::Open);
    let open: Vec<&str> = open.map(|(token, _)| token.as_str()).collect();
    let kept = open.iter().filter(|token| outcomes[**token] == "committed").count();
    println!("{rounds} rounds, {} transactions; {} were cut, {kept} of them committed", outcomes.len(), open.len());
    assert!(!open.is_empty(), "no COMMIT was cut");
}

#[test]
fn cut_commits_have_an_outcome_after_a_promotion() {
    turns(&[], &[], 4);
}

#[test]
fn cut_commits_have_an_outcome_after_a_failover() {
    turns(&["--failover", "automatic"], &[], 3);
}

#[test]
fn cut_commits_have_an_outcome_where_statements_are_executed_again() {
    turns(&["--record-inputs"], &["--encoding", "inputs"], 3);
}
