//! What the sessions of a registry have counted.

use std::collections::BTreeMap;

use freshet_sql::types::Timestamp;

use super::activity::Registry;
use crate::{
    schema::Oid,
    statistics::{DatabaseSums, Query, RelationCounts, query::Which, relation::ByOid},
};

impl Registry {
    /// What the sessions of each database have counted.
    pub fn sums(&self) -> BTreeMap<Oid, DatabaseSums> {
        self.totals.sums(&self.all())
    }

    /// What those of a database have counted of its tables and indexes.
    pub fn relations(&self, database: Oid) -> ByOid<RelationCounts> {
        self.totals.relations(database, &self.all())
    }

    /// What statements have taken.
    pub fn queries(&self) -> Vec<Query> {
        let all = self.all();
        self.totals.queries.queries(all.iter().map(|session| &session.counts.queries))
    }

    /// How often statements were forgotten for others, and when all were last.
    pub fn evictions(&self) -> (u64, Option<Timestamp>) {
        self.totals.queries.evictions()
    }

    /// Forgets statements.
    pub fn forget_queries(&self, which: Which) {
        let all = self.all();
        self.totals.queries.reset(which, all.iter().map(|session| &session.counts.queries));
    }

    /// Counts a database from now on.
    pub fn reset(&self, database: Oid) {
        self.totals.reset(database, &self.all());
    }

    /// Counts one of its tables or indexes from now on.
    pub fn reset_relation(&self, database: Oid, relation: Oid) {
        self.totals.reset_relation(database, relation, &self.all());
    }
}
