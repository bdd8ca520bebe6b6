//! The bank of the demo, as in TPC-B: transfers change an account, a teller and a branch, and add a
//! line to the history.

use std::{fmt::Write, iter};

use freshet_workloads::random::Random;

/// Tellers of a branch.
const TELLERS: u32 = 10;
/// Accounts of a branch.
const ACCOUNTS: u32 = 5_000;
/// Rows of one INSERT.
const AT_ONCE: u32 = 1_000;

/// Its tables. A line of the history bears the mark of its transfer.
pub(super) const TABLES: [&str; 4] = [
    "CREATE TABLE branches (id int PRIMARY KEY, balance bigint NOT NULL)",
    "CREATE TABLE tellers (id int PRIMARY KEY, branch int NOT NULL, balance bigint NOT NULL)",
    "CREATE TABLE accounts (id int PRIMARY KEY, branch int NOT NULL, balance bigint NOT NULL)",
    "CREATE TABLE history (client int, number bigint, teller int NOT NULL, account int NOT NULL, \
     delta bigint NOT NULL, PRIMARY KEY (client, number))",
];

/// A transfer: its client, and which of this client's it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Mark {
    pub(super) client: u16,
    pub(super) number: u64,
}

/// How large it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bank {
    pub(super) branches: u32,
}

impl Bank {
    /// How many rows are loaded.
    pub(super) fn rows(self) -> u64 {
        u64::from(self.branches) * u64::from(1 + TELLERS + ACCOUNTS)
    }

    /// Statements that load it, with how many rows each inserts.
    pub(super) fn inserts(self) -> impl Iterator<Item = (u64, String)> {
        let branches = inserts("branches", self.branches, None);
        let tellers = inserts("tellers", self.branches * TELLERS, Some(TELLERS));
        branches.chain(tellers).chain(inserts("accounts", self.branches * ACCOUNTS, Some(ACCOUNTS)))
    }

    /// A transfer of something at some teller's.
    pub(super) fn transfer(self, mark: Mark, random: &mut Random) -> String {
        let account = random.below(u64::from(self.branches * ACCOUNTS));
        let teller = random.below(u64::from(self.branches * TELLERS));
        let (branch, delta) = (teller / u64::from(TELLERS), random.below(2_000) as i64 - 1_000);
        let Mark { client, number } = mark;
        format!(
            "BEGIN; UPDATE accounts SET balance = balance + {delta} WHERE id = {account}; \
             UPDATE tellers SET balance = balance + {delta} WHERE id = {teller}; \
             UPDATE branches SET balance = balance + {delta} WHERE id = {branch}; \
             INSERT INTO history VALUES ({client}, {number}, {teller}, {account}, {delta}); COMMIT"
        )
    }

    /// A question about some account.
    pub(super) fn question(self, random: &mut Random) -> String {
        format!("SELECT balance FROM accounts WHERE id = {}", random.below(u64::from(self.branches * ACCOUNTS)))
    }
}

/// Statements that insert `rows` rows, `each` for a branch.
fn inserts(table: &str, rows: u32, each: Option<u32>) -> impl Iterator<Item = (u64, String)> {
    let mut from = 0;
    iter::from_fn(move || {
        let ids = from..rows.min(from + AT_ONCE);
        from = ids.end;
        let mut insert = format!("INSERT INTO {table} VALUES ");
        for id in ids.clone() {
            let branch = each.map_or_else(String::new, |each| format!("{}, ", id / each));
            let comma = if id == ids.start { "" } else { ", " };
            let _ = write!(insert, "{comma}({id}, {branch}0)");
        }
        (!ids.is_empty()).then(|| (ids.len() as u64, insert))
    })
}
