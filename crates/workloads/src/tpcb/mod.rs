//! TPC-B (Transaction Processing Performance Council, "TPC Benchmark B", revision 2.0): branches,
//! tellers, accounts and a history, and one transaction, which the distributed-logging paper calls
//! Account Update (section 5.1).
//!
//! Rows have the sizes that the specification asks for (clause 4.2: at least 100 bytes, history
//! 50).

use freshet_base::Isolation;
use serde::{Deserialize, Serialize};

pub use crate::batch::LoadError;
use crate::{
    command::{self, TPCB},
    engine::{Database, ProcedureError, TableDefinition, Ticket, Transaction, Worker},
    procedure::read_only,
    random::Random,
    row::{Row, Sorted, Text, layout},
    share::load_shares,
    table::{FindTable, NoTable, TableSet, Typed, definition, part},
};

layout! {
    /// A branch.
    Branch = "tpcb_branch" {
        /// Its number, from 1.
        ID: Sorted<u32>,
        /// The sum of its accounts' balances.
        BALANCE: i64,
        /// Fills the row.
        FILLER: Text<88>,
    }
}

layout! {
    /// A teller.
    Teller = "tpcb_teller" {
        /// Its number, from 1.
        ID: Sorted<u32>,
        /// Its branch.
        BRANCH: u32,
        /// What went through its hands.
        BALANCE: i64,
        /// Fills the row.
        FILLER: Text<84>,
    }
}

layout! {
    /// An account.
    Account = "tpcb_account" {
        /// Its number, from 1.
        ID: Sorted<u64>,
        /// Its branch.
        BRANCH: u32,
        /// Its balance.
        BALANCE: i64,
        /// Fills the row.
        FILLER: Text<80>,
    }
}

layout! {
    /// One transaction.
    History = "tpcb_history" {
        /// Who ran it, and which of its transactions it was: the primary key.
        TERMINAL: Sorted<u32>,
        /// Which of the terminal's transactions.
        NUMBER: Sorted<u64>,
        /// Its teller.
        TELLER: u32,
        /// Its branch.
        BRANCH: u32,
        /// Its account.
        ACCOUNT: u64,
        /// By how much the balances changed.
        DELTA: i64,
        /// Fills the row.
        FILLER: Text<22>,
    }
}

/// Tellers of a branch (clause 4.2.1).
pub const TELLERS: u32 = 10;
/// Accounts of a branch (clause 4.2.1).
pub const ACCOUNTS: u64 = 100_000;

/// How large the database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    /// Branches.
    pub branches: u32,
    /// Accounts of a branch; [`ACCOUNTS`] in the specification.
    pub accounts: u64,
}

/// Handles on the tables. Cheap to clone.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is the table of its row's documentation")]
pub struct Tables {
    pub branch: Typed<Branch>,
    pub teller: Typed<Teller>,
    pub account: Typed<Account>,
    pub history: Typed<History>,
}

impl TableSet for Tables {
    fn definitions() -> Vec<TableDefinition> {
        vec![
            definition::<Branch>(part(Branch::ID, Branch::ID), &[]),
            definition::<Teller>(part(Teller::ID, Teller::ID), &[]),
            definition::<Account>(part(Account::ID, Account::ID), &[]),
            definition::<History>(part(History::TERMINAL, History::NUMBER), &[]),
        ]
    }

    fn open(database: &dyn FindTable) -> Result<Self, NoTable> {
        Ok(Self {
            branch: Typed::open(database)?,
            teller: Typed::open(database)?,
            account: Typed::open(database)?,
            history: Typed::open(database)?,
        })
    }
}

/// Loads the initial rows, all balances zero (clause 4.2), with `threads` workers.
///
/// # Errors
/// See [`LoadError`].
pub fn load(
    database: &Database,
    tables: &Tables,
    scale: Scale,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Option<Ticket>, LoadError> {
    let worker = database.worker()?;
    let (loaded, _) = read_only(&worker, |txn| Ok(tables.branch.find(txn, &1u32.to_be_bytes())?.is_some()))?;
    if loaded {
        return Err(LoadError::NotEmpty);
    }
    drop(worker);
    let accounts = u64::from(scale.branches) * scale.accounts;
    load_shares(database, 0..accounts, threads, progress, |batch, number| {
        // A branch and its tellers come with its first account.
        if number % scale.accounts == 0 {
            let branch = (number / scale.accounts) as u32;
            batch.insert(&tables.branch, &Row::new().with(Branch::ID, branch + 1))?;
            for teller in branch * TELLERS..(branch + 1) * TELLERS {
                let row = Row::new().with(Teller::ID, teller + 1).with(Teller::BRANCH, branch + 1);
                batch.insert(&tables.teller, &row)?;
            }
        }
        let branch = (number / scale.accounts) as u32 + 1;
        batch.insert(&tables.account, &Row::new().with(Account::ID, number + 1).with(Account::BRANCH, branch))
    })
}

/// How many rows [`load`] makes.
pub fn expected_rows(scale: Scale) -> u64 {
    u64::from(scale.branches) * (1 + u64::from(TELLERS) + scale.accounts)
}

/// The input of the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Who asks.
    pub terminal: u32,
    /// Which of its transactions this is.
    pub number: u64,
    /// The teller.
    pub teller: u32,
    /// The account.
    pub account: u64,
    /// By how much the balances change.
    pub delta: i64,
}

/// Makes inputs.
#[derive(Clone, Debug)]
pub struct Terminal {
    scale: Scale,
    terminal: u32,
    number: u64,
    random: Random,
}

impl Terminal {
    /// Terminal number `terminal`, whose inputs depend on the seed and its number only.
    pub fn new(scale: Scale, seed: u64, terminal: u32) -> Self {
        Self { scale, terminal, number: 0, random: Random::stream(seed, terminal.into()) }
    }

    /// The next input (clause 5.3): a teller at random; an account of its branch, or in 15 % of the
    /// cases of another.
    pub fn next_input(&mut self) -> Input {
        let Self { scale, random, .. } = self;
        let teller = random.below(u64::from(scale.branches * TELLERS)) as u32;
        let home = teller / TELLERS;
        let mut branch = u64::from(home);
        if scale.branches > 1 && random.within(1, 100) > 85 {
            branch = random.below(u64::from(scale.branches) - 1);
            branch += u64::from(branch >= u64::from(home));
        }
        let account = branch * scale.accounts + random.below(scale.accounts) + 1;
        let delta = random.within(0, 1_999_998) as i64 - 999_999;
        self.number += 1;
        Input { terminal: self.terminal, number: self.number, teller: teller + 1, account, delta }
    }
}

/// Runs the transaction (clause 1.2), again if it loses races; returns the account's new balance.
///
/// # Errors
/// When it could not be done. It has left no trace then.
#[inline]
pub fn run(
    worker: &Worker,
    tables: &Tables,
    isolation: Isolation,
    input: &Input,
) -> Result<(i64, Ticket), ProcedureError> {
    worker.execute(isolation, |txn| {
        let balance = transact(txn, tables, input)?;
        command::record(txn, TPCB, input);
        Ok(balance)
    })
}

pub(crate) fn transact(txn: &Transaction<'_>, tables: &Tables, input: &Input) -> Result<i64, ProcedureError> {
    let account = tables.account.need(txn, &input.account.to_be_bytes(), "there is no such account")?;
    let balance = account.row.get(Account::BALANCE) + input.delta;
    tables.account.update(txn, account.rid, &account.row.to_row().with(Account::BALANCE, balance))?;
    let teller = tables.teller.need(txn, &input.teller.to_be_bytes(), "there is no such teller")?;
    let held = teller.row.get(Teller::BALANCE) + input.delta;
    tables.teller.update(txn, teller.rid, &teller.row.to_row().with(Teller::BALANCE, held))?;
    let number = teller.row.get(Teller::BRANCH);
    let branch = tables.branch.need(txn, &number.to_be_bytes(), "there is no such branch")?;
    let sum = branch.row.get(Branch::BALANCE) + input.delta;
    tables.branch.update(txn, branch.rid, &branch.row.to_row().with(Branch::BALANCE, sum))?;
    let row = Row::new()
        .with(History::TERMINAL, input.terminal)
        .with(History::NUMBER, input.number)
        .with(History::TELLER, input.teller)
        .with(History::BRANCH, number)
        .with(History::ACCOUNT, input.account)
        .with(History::DELTA, input.delta);
    tables.history.insert(txn, &row)?;
    Ok(balance)
}

/// Checks the consistency conditions (clause 2.2.4): a branch's balance is the sum of its tellers',
/// all balances agree with each other, and all agree with the history. Returns what does not hold,
/// and how many transactions there were.
///
/// # Errors
/// That of a scan.
pub fn check(txn: &Transaction<'_>, tables: &Tables) -> Result<(Vec<String>, u64), ProcedureError> {
    let (mut branches, mut tellers, mut accounts, mut deltas, mut count) = (Vec::new(), Vec::new(), 0i64, 0i64, 0);
    tables.branch.scan_all(txn, |found| branches.push(found.row.get(Branch::BALANCE)))?;
    tellers.resize(branches.len(), 0i64);
    tables.teller.scan_all(txn, |found| {
        if let Some(sum) = tellers.get_mut((found.row.get(Teller::BRANCH) as usize).wrapping_sub(1)) {
            *sum += found.row.get(Teller::BALANCE);
        }
    })?;
    tables.account.scan_all(txn, |found| accounts += found.row.get(Account::BALANCE))?;
    tables.history.scan_all(txn, |found| {
        deltas += found.row.get(History::DELTA);
        count += 1;
    })?;
    let mut wrong = Vec::new();
    for (number, (branch, tellers)) in branches.iter().zip(&tellers).enumerate() {
        if branch != tellers {
            wrong.push(format!("branch {} has {branch}, its tellers have {tellers}", number + 1));
        }
    }
    let all: i64 = branches.iter().sum();
    if all != accounts {
        wrong.push(format!("all branches have {all}, all accounts {accounts}"));
    }
    if all != deltas {
        wrong.push(format!("all branches have {all}, the history says {deltas}"));
    }
    Ok((wrong, count))
}
