//! Tokens and outcomes on a database in memory: what is kept, and for how long.

use super::{row::NONCE, *};

/// Nothing interrupts.
fn never() -> Result<(), SqlError> {
    Ok(())
}

const LONG: Limits = Limits { tokens: 1000, generation: Duration::from_secs(3600), kept: Duration::from_secs(3600) };

fn outcomes(database: &Database, limits: Limits) -> Arc<Outcomes> {
    let outcomes = Outcomes::within(database.clone(), limits).unwrap();
    outcomes.make().unwrap();
    Arc::new(outcomes)
}

/// A transaction that asks for a token, and commits.
fn commit(outcomes: &Arc<Outcomes>, worker: &Worker) -> Token {
    let open = outcomes.token(&never).unwrap();
    let transaction = worker.begin(Isolation::Snapshot);
    open.write(&transaction).unwrap();
    let _ = transaction.commit().unwrap();
    open.committed();
    open.token()
}

fn outcome(outcomes: &Outcomes, token: Token) -> Outcome {
    outcomes.outcome(token, &never).unwrap()
}

fn rows(database: &Database) -> usize {
    let (worker, mut rows) = (database.worker().unwrap(), 0);
    let transaction = worker.begin_read_only();
    let all = [[0; KEY as usize], [u8::MAX; KEY as usize]];
    let count = |_: Record<'_>| {
        rows += 1;
        ControlFlow::Continue(())
    };
    each(&transaction, &database.table(TABLE).unwrap(), &all, Direction::Forward, count).unwrap();
    rows
}

#[test]
fn tokens_name_their_generation() {
    for (number, nonce, random) in [(1, 0, 0), (u32::MAX, u32::MAX, u64::MAX), (7, 0x0123_4567, 0x89ab_cdef)] {
        let generation = Generation::new(number, nonce, 42, 43);
        assert_eq!(Generation::of(&generation.row()), Some(generation));
        let token = Token::new(generation, random);
        assert_eq!((token.number(), token.0[6] >> 4, token.0[8] >> 6), (number, 8, 2), "a UUID");
        assert!(token.is_of(generation));
        assert!(!token.is_of(Generation::new(number, nonce ^ 1, 42, 43)));
        assert!(!token.is_of(Generation::new(number, nonce ^ 1 << 27, 42, 43)));
        let key: Key = generation.row()[..KEY as usize].try_into().unwrap();
        assert!(token.generation()[0] <= key && key <= token.generation()[1]);
        assert!(Generation::RANGE[0] <= key && key <= Generation::RANGE[1]);
        assert!(Generation::of(&token.row()).is_none());
    }
    let of = |number, random| Token::new(Generation::new(number, NONCE, 1, 1), random).row();
    let [from, to] = Token::before(Generation::new(8, 0, 1, 1));
    assert!(from <= of(1, 0) && of(7, u64::MAX) <= to && to < of(8, 0));
}

#[test]
fn a_transaction_is_committed_or_not() {
    let database = Database::volatile(8);
    let (outcomes, worker) = (outcomes(&database, LONG), database.worker().unwrap());
    let committed = commit(&outcomes, &worker);
    let open = outcomes.token(&never).unwrap();
    let token = open.token();
    assert_eq!(outcome(&outcomes, committed), Outcome::Committed);
    assert_eq!(outcome(&outcomes, token), Outcome::InProgress);
    drop(open);
    assert_eq!(outcome(&outcomes, token), Outcome::Aborted);
    // One that another database has made, one of a generation that is to come, and none at all.
    let mut other = committed;
    other.0[7] ^= 1;
    let mut later = committed;
    later.0[3] += 1;
    for token in [other, later, Token([0; 16]), Token([u8::MAX; 16])] {
        assert_eq!(outcome(&outcomes, token), Outcome::Forgotten);
    }
    assert_eq!(guard(&outcomes.open).len(), 0);
}

/// Another primary takes over: it has what was committed, and nothing of what was open.
#[test]
fn another_run_ends_what_was_open() {
    let database = Database::volatile(16);
    let (first, worker) = (outcomes(&database, LONG), database.worker().unwrap());
    let (committed, open) = (commit(&first, &worker), first.token(&never).unwrap());
    for begins in [false, true] {
        let second = outcomes(&database, LONG);
        if begins {
            second.begin_run().unwrap();
            second.begin_run().unwrap();
        }
        assert_eq!(outcome(&second, open.token()), Outcome::Aborted);
        assert_eq!(outcome(&second, committed), Outcome::Committed);
        assert_eq!(guard(&second.state).generations.len(), 2 + usize::from(begins));
    }
}

#[test]
fn who_has_no_tokens_begins_no_run() {
    let database = Database::volatile(8);
    let outcomes = outcomes(&database, LONG);
    outcomes.begin_run().unwrap();
    assert_eq!(rows(&database), 0);
    assert_eq!(outcome(&outcomes, Token([7; 16])), Outcome::Forgotten);
    assert_eq!(rows(&database), 0);
}

#[test]
fn there_are_no_more_tokens_than_are_kept() {
    let database = Database::volatile(8);
    let limits = Limits { tokens: 100, ..LONG };
    let (outcomes, worker) = (outcomes(&database, limits), database.worker().unwrap());
    let tokens: Vec<_> = (0..99).map(|_| commit(&outcomes, &worker)).collect();
    // What is rolled back takes no place.
    for _ in 0..10 {
        drop(outcomes.token(&never).unwrap());
    }
    let open = outcomes.token(&never).unwrap();
    assert_eq!(outcomes.token(&never).unwrap_err().state, SqlState::PROGRAM_LIMIT_EXCEEDED);
    drop(open);
    commit(&outcomes, &worker);
    assert!(outcomes.token(&never).is_err());
    // Where memory is bounded, that decides.
    database.core().memory.set_limit(8 << 30);
    assert_eq!(outcomes.most(), 8 << 20);
    commit(&outcomes, &worker);
    assert!(tokens.iter().all(|token| outcome(&outcomes, *token) == Outcome::Committed));
}

/// What is old is removed, a bounded part at a time; then nothing is known of it.
#[test]
fn old_tokens_are_removed() {
    let database = Database::volatile(8);
    let (outcomes, worker) = (outcomes(&database, LONG), database.worker().unwrap());
    let tokens: Vec<_> = (0..600).map(|_| commit(&outcomes, &worker)).collect();
    let late = outcomes.token(&never).unwrap();
    // Time passes: another generation begins, and is there for as long as the former is kept.
    let older = |by: Duration| {
        let mut state = guard(&outcomes.state);
        state.current.as_mut().unwrap().before += by;
        state.generations.iter_mut().for_each(|it| it.before += by);
    };
    older(LONG.generation);
    let second = commit(&outcomes, &worker);
    // The next one of it is made, and is of the next generation from then on.
    let third = commit(&outcomes, &worker);
    assert!(second.number() <= third.number() && third.number() == 2);
    older(LONG.kept - Duration::from_secs(60));
    outcomes.remove().unwrap();
    assert_eq!(outcome(&outcomes, tokens[0]), Outcome::Committed, "not yet");
    older(Duration::from_secs(60));
    let mut before = rows(&database);
    for left in [true, true, false] {
        outcomes.remove().unwrap();
        let now = rows(&database);
        assert!(before - now <= BATCH + 1, "bounded work");
        before = now;
        assert_eq!(guard(&outcomes.state).left, left);
    }
    let forgotten = |token: Token| outcome(&outcomes, token) == Outcome::Forgotten;
    assert!(tokens.iter().all(|token| forgotten(*token)));
    assert_eq!(outcome(&outcomes, third), Outcome::Committed);
    // A transaction may last longer than its generation is kept.
    assert_eq!(outcome(&outcomes, late.token()), Outcome::InProgress);
    let token = late.token();
    drop(late);
    assert_eq!(outcome(&outcomes, token), Outcome::Forgotten);
    // Nothing of it is removed twice, and the last generation stays.
    older(10 * LONG.kept);
    outcomes.remove().unwrap();
    assert_eq!(guard(&outcomes.state).generations.len(), 1);
}

/// A clock that has gone back makes nothing younger than it was, nor older.
#[test]
fn clocks_decide_only_what_is_removed() {
    let database = Database::volatile(16);
    let (first, worker) = (outcomes(&database, LONG), database.worker().unwrap());
    let (committed, open) = (commit(&first, &worker), first.token(&never).unwrap());
    for begun in [0, u64::MAX] {
        // A generation whose primary had another time altogether.
        let generation = Generation::new(if begun == 0 { 2 } else { 3 }, 5, 6, begun);
        let transaction = worker.begin(Isolation::Snapshot);
        transaction.insert(&database.table(TABLE).unwrap(), &generation.row()).unwrap();
        let _ = transaction.commit().unwrap();
    }
    let second = outcomes(&database, LONG);
    assert_eq!(outcome(&second, committed), Outcome::Committed);
    assert_eq!(outcome(&second, open.token()), Outcome::Aborted);
    // It removes the first one, since the second has begun in 1970: too early, and no lie.
    let _ = commit(&second, &worker);
    second.remove().unwrap();
    for token in [committed, open.token()] {
        assert_eq!(outcome(&second, token), Outcome::Forgotten);
    }
    assert_eq!(guard(&second.state).generations.front().unwrap().generation.number, 2);
}

#[test]
#[ignore = "measures"]
fn what_a_token_takes() {
    let database = Database::volatile(8);
    let (outcomes, worker) = (outcomes(&database, LIMITS), database.worker().unwrap());
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    };
    let before = resident();
    let begun = Instant::now();
    const COUNT: u64 = 1_000_000;
    for _ in 0..COUNT {
        commit(&outcomes, &worker);
    }
    println!("{} bytes, {:?} each", (resident() - before) / COUNT, begun.elapsed() / COUNT as u32);
    let token = commit(&outcomes, &worker);
    let begun = Instant::now();
    for _ in 0..10_000 {
        outcome(&outcomes, token);
    }
    println!("asked in {:?}", begun.elapsed() / 10_000);
    let again = Outcomes::within(database.clone(), LIMITS).unwrap();
    let begun = Instant::now();
    again.begin_run().unwrap();
    println!("begun in {:?}, {} tokens estimated", begun.elapsed(), guard(&again.state).tokens);
    let state = guard(&outcomes.state).generations.len();
    println!("{state} generations");
}
