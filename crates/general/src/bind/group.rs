//! GROUP BY: what is grouped, and what of a query's expressions is left to see behind it.

use std::{collections::HashSet, sync::Arc};

use arrow::datatypes::DataType;
use datafusion_common::{
    Column, Result as DataFusionResult,
    tree_node::{Transformed, TreeNode, TreeNodeRecursion},
};
use datafusion_expr::{
    Aggregate as AggregatePlan, AggregateUDF, ColumnarValue, Expr, LogicalPlan, Projection, ScalarFunctionArgs,
    ScalarUDFImpl, Signature, Union, Volatility,
    expr::{AggregateFunction, AggregateFunctionParams},
};
use freshet_sql::{
    Kind, SqlError, SqlState, Type, Value,
    listed::{self, Listed},
};
use sqlparser::ast::{self, GroupByExpr, GroupByWithModifier};

use super::{
    Binder, COLUMN, EXPRESSION, PART,
    clause::{Clause, Collect},
    expression::row,
    query::Item,
    typed::Typed,
};
use crate::{
    aggregate::{Aggregate, AggregateKind},
    error::{external, to_sql, unsupported},
    function::{call, called},
    key::{compares, key},
    subquery::SubqueryFunction,
};

/// As many grouping sets as PostgreSQL allows.
const MAX_SETS: usize = 4096;

/// `GROUPING(...)`, until the grouping sets are known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grouping {
    signature: Signature,
}

impl Grouping {
    pub fn call(arguments: Vec<Expr>) -> Expr {
        call(Self { signature: Signature::user_defined(Volatility::Immutable) }, arguments)
    }
}

impl ScalarUDFImpl for Grouping {
    fn name(&self) -> &'static str {
        "grouping"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Int32)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        Ok(arguments.to_vec())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        Err(external(bad_grouping()))
    }
}

/// What a query groups by.
pub(super) struct Groups {
    pub keys: Vec<Typed>,
    /// For each key, the item of SELECT's list that it is, if it is one.
    items: Vec<Option<usize>>,
    /// Which keys are grouped by at a time; nothing when it is all of them.
    pub sets: Option<Vec<Vec<usize>>>,
}

/// Expressions and the columns that stand for them behind the grouping.
#[derive(Default)]
pub(super) struct Replacements {
    pairs: Vec<(Expr, Expr)>,
    groupings: Vec<(Vec<Expr>, Expr)>,
}

impl Groups {
    /// The key that an item of SELECT's list is.
    pub fn key_of(&self, item: usize) -> Option<usize> {
        self.items.iter().position(|known| *known == Some(item))
    }
}

/// The keys that were found so far.
#[derive(Default)]
struct Keys {
    keys: Vec<Typed>,
    items: Vec<Option<usize>>,
}

impl Binder<'_> {
    /// GROUP BY, whose names and numbers may mean what SELECT lists.
    pub(super) fn group_by(&mut self, group_by: &GroupByExpr, items: &[ListItem<'_>]) -> Result<Groups, SqlError> {
        let GroupByExpr::Expressions(exprs, modifiers) = group_by else {
            return Err(unsupported("GROUP BY ALL"));
        };
        let mut keys = Keys::default();
        // Each element offers some sets; the query's are all combinations.
        let mut sets: Vec<Vec<usize>> = vec![Vec::new()];
        let mut several = false;
        let elements = exprs.iter().chain(modifiers.iter().filter_map(|modifier| match modifier {
            GroupByWithModifier::GroupingSets(expr) => Some(expr),
            _ => None,
        }));
        for expr in elements {
            let offered = self.grouping_element(expr, items, &mut keys)?;
            several |= !matches!(expr, ast::Expr::Tuple(_)) && is_grouping(expr);
            sets = sets
                .iter()
                .flat_map(|set| offered.iter().map(|more| set.iter().chain(more).copied().collect::<Vec<_>>()))
                .collect();
            if sets.len() > MAX_SETS {
                return Err(SqlError::new(
                    SqlState::STATEMENT_TOO_COMPLEX,
                    format!("too many grouping sets present (maximum {MAX_SETS})"),
                ));
            }
        }
        if modifiers.iter().any(|modifier| !matches!(modifier, GroupByWithModifier::GroupingSets(_))) {
            return Err(unsupported("WITH ROLLUP, CUBE or TOTALS"));
        }
        for set in &mut sets {
            set.sort_unstable();
            set.dedup();
        }
        Ok(Groups { keys: keys.keys, items: keys.items, sets: several.then_some(sets) })
    }

    fn grouping_element(
        &mut self,
        expr: &ast::Expr,
        items: &[ListItem<'_>],
        keys: &mut Keys,
    ) -> Result<Vec<Vec<usize>>, SqlError> {
        let mut parts = |binder: &mut Self, parts: &[Vec<ast::Expr>]| {
            parts
                .iter()
                .map(|part| part.iter().map(|expr| binder.grouping_key(expr, items, keys)).collect())
                .collect::<Result<Vec<Vec<usize>>, SqlError>>()
        };
        match expr {
            ast::Expr::Rollup(elements) => {
                let elements = parts(self, elements)?;
                Ok((0..=elements.len()).rev().map(|count| elements[..count].concat()).collect())
            }
            ast::Expr::Cube(elements) => {
                let elements = parts(self, elements)?;
                if elements.len() > 12 {
                    return Err(SqlError::new(SqlState::TOO_MANY_COLUMNS, "CUBE is limited to 12 elements"));
                }
                let all = 1usize << elements.len();
                Ok((0..all)
                    .map(|left_out| {
                        let taken = |at: &usize| left_out >> (elements.len() - 1 - at) & 1 == 0;
                        (0..elements.len()).filter(taken).flat_map(|at| elements[at].iter().copied()).collect()
                    })
                    .collect())
            }
            ast::Expr::GroupingSets(elements) => parts(self, elements),
            ast::Expr::Tuple(elements) => {
                let set: Result<Vec<usize>, SqlError> =
                    elements.iter().map(|expr| self.grouping_key(expr, items, keys)).collect();
                Ok(vec![set?])
            }
            expr => Ok(vec![vec![self.grouping_key(expr, items, keys)?]]),
        }
    }

    /// The number of a key, which is added unless it is there.
    fn grouping_key(&mut self, expr: &ast::Expr, items: &[ListItem<'_>], keys: &mut Keys) -> Result<usize, SqlError> {
        let (item, typed) = self.grouping_expression(expr, items)?;
        let typed = self.settle(typed)?;
        if typed.kind() == Kind::Json {
            return Err(SqlError::new(
                SqlState::UNDEFINED_FUNCTION,
                "could not identify an equality operator for type json",
            ));
        }
        // Items that are computed alike are grouped by one by one.
        let same = |(key, known): (&Typed, &Option<usize>)| match (*known, item) {
            (Some(known), Some(item)) => known == item,
            _ => key.expr == typed.expr,
        };
        if let Some(at) = keys.keys.iter().zip(&keys.items).position(same) {
            return Ok(at);
        }
        keys.keys.push(typed);
        keys.items.push(item);
        Ok(keys.keys.len() - 1)
    }

    /// A key, and the item of SELECT's list that it is, if it is one.
    fn grouping_expression(
        &mut self,
        expr: &ast::Expr,
        items: &[ListItem<'_>],
    ) -> Result<(Option<usize>, Typed), SqlError> {
        self.level().clause = Clause::GroupBy;
        let listed = match listed::listed(expr) {
            Some(Listed::Place(digits)) => Some(listed::place(&digits, items.len(), "GROUP BY")?),
            Some(Listed::Constant) => return Err(listed::no_place("GROUP BY")),
            // A column of FROM comes before a name in SELECT's list.
            Some(Listed::Name(name)) => {
                if self.level().scope.columns.iter().any(|column| column.name == name) {
                    None
                } else {
                    items.iter().position(|item| item.name == name)
                }
            }
            None => None,
        };
        let written = |item: &ListItem<'_>| matches!(item.source, ListSource::Expr(written) if written == expr);
        let listed = listed.or_else(|| items.iter().position(written));
        let source = match listed.and_then(|at| items.get(at)) {
            Some(ListItem { source: ListSource::Expr(expr), .. }) => expr,
            Some(ListItem { source: ListSource::Column(typed), .. }) => return Ok((listed, typed.clone())),
            None => expr,
        };
        let typed = self.expression(source)?;
        if typed.expr.exists(|expr| Ok(called::<SubqueryFunction>(expr).is_some())).map_err(to_sql)? {
            self.level().grouped.push((source.clone(), typed.clone()));
        }
        Ok((listed, typed))
    }

    /// The plan that groups, and what stands for its keys.
    pub(super) fn grouped(
        &mut self,
        plan: LogicalPlan,
        groups: Groups,
        mut aggregates: Vec<Collect>,
        groupings: Vec<Vec<Expr>>,
    ) -> Result<(LogicalPlan, Replacements), SqlError> {
        if groups.keys.is_empty() && aggregates.is_empty() {
            aggregates.push(self.any_row()?);
        }
        let Some(sets) = groups.sets else {
            let all: Vec<usize> = (0..groups.keys.len()).collect();
            let determined = self.determined(&groups.keys);
            aggregates.extend(determined.iter().map(|(_, any)| any.clone()));
            let (plan, mut pairs) = self.aggregate(plan, &groups.keys, &all, &aggregates)?;
            pairs.extend(determined.into_iter().map(|(column, any)| (column, any.column.expr)));
            let zero = Typed::literal(&Value::Int4(0), Type::INT4)?.expr;
            let groupings = groupings.into_iter().map(|arguments| (arguments, zero.clone())).collect();
            return Ok((plan, Replacements { pairs, groupings }));
        };
        self.grouping_sets(plan, &groups.keys, &sets, &aggregates, groupings)
    }

    /// The columns that have one value for each group, because a primary key is grouped by;
    /// and what computes them.
    fn determined(&mut self, keys: &[Typed]) -> Vec<(Expr, Collect)> {
        let is_key = |expr: &Expr| keys.iter().any(|key| key.expr == *expr);
        let mut columns = Vec::new();
        for table in &self.level().scope.tables {
            let mut key = table.key.iter().map(|at| table.columns.get(*at));
            if table.key.is_empty() || !key.all(|column| column.is_some_and(|column| is_key(&column.expr))) {
                continue;
            }
            let others = table.columns.iter().filter(|column| !is_key(&column.expr));
            columns.extend(others.map(|column| column.unread()));
        }
        let any = |column: Typed| {
            let types = vec![column.ty];
            let any = Aggregate::new(AggregateKind::AnyValue, "any_value", types, 1, column.ty, Vec::new(), false);
            let expr = aggregate_expr(any, vec![column.expr.clone()]);
            let made = self.collect(expr, column.ty, "any");
            (column.expr, made)
        };
        columns.into_iter().map(any).collect()
    }

    fn any_row(&mut self) -> Result<Collect, SqlError> {
        let function =
            Aggregate::new(AggregateKind::Count, "count", vec![Type::INT4], 1, Type::INT8, Vec::new(), false);
        let one = Typed::literal(&Value::Int4(1), Type::INT4)?;
        let expr = aggregate_expr(function, vec![one.expr]);
        Ok(self.collect(expr, Type::INT8, "count"))
    }

    /// Groups by some of the keys.
    fn aggregate(
        &mut self,
        input: LogicalPlan,
        keys: &[Typed],
        set: &[usize],
        aggregates: &[Collect],
    ) -> Result<(LogicalPlan, Vec<(Expr, Expr)>), SqlError> {
        let mut group_expr = Vec::with_capacity(set.len());
        let mut aggr_expr: Vec<Expr> =
            aggregates.iter().map(|collected| collected.expr.clone().alias(&collected.name)).collect();
        let mut pairs = Vec::with_capacity(set.len());
        for at in set {
            let typed = &keys[*at];
            let name = self.fresh("key");
            if compares(typed.ty) {
                pairs.push((typed.expr.clone(), Expr::Column(Column::new_unqualified(name.clone()))));
                group_expr.push(typed.expr.clone().alias(name));
                continue;
            }
            // Equal values may look different: one of them is shown.
            group_expr.push(key(typed.expr.clone(), typed.ty).alias(name));
            let name = self.fresh("any");
            let types = vec![typed.ty];
            let any = Aggregate::new(AggregateKind::AnyValue, "any_value", types, 1, typed.ty, Vec::new(), false);
            aggr_expr.push(aggregate_expr(any, vec![typed.expr.clone()]).alias(&name));
            pairs.push((typed.expr.clone(), Expr::Column(Column::new_unqualified(name))));
        }
        if group_expr.is_empty() && aggr_expr.is_empty() {
            let any = self.any_row()?;
            aggr_expr.push(any.expr.alias(any.name));
        }
        let plan = AggregatePlan::try_new(Arc::new(input), group_expr, aggr_expr).map_err(to_sql)?;
        Ok((LogicalPlan::Aggregate(plan), pairs))
    }

    /// Groups by each set of keys, and puts the results together.
    fn grouping_sets(
        &mut self,
        input: LogicalPlan,
        keys: &[Typed],
        sets: &[Vec<usize>],
        aggregates: &[Collect],
        groupings: Vec<Vec<Expr>>,
    ) -> Result<(LogicalPlan, Replacements), SqlError> {
        let used = keys.iter().map(|key| &key.expr).chain(aggregates.iter().map(|collected| &collected.expr));
        let (shared, renamed) = self.share(input, used)?;
        let rename = |expr: &Expr| replace(expr.clone(), &renamed);
        let own_keys =
            keys.iter().map(|key| Ok(Typed::new(rename(&key.expr)?, key.ty))).collect::<Result<Vec<_>, SqlError>>()?;
        let own_aggregates = aggregates
            .iter()
            .map(|collected| Ok(Collect { expr: rename(&collected.expr)?, ..collected.clone() }))
            .collect::<Result<Vec<_>, SqlError>>()?;
        let key_names: Vec<String> = keys.iter().map(|_| self.fresh("key")).collect();
        let grouping_names: Vec<String> = groupings.iter().map(|_| self.fresh("grouping")).collect();

        let mut branches = Vec::with_capacity(sets.len());
        for set in sets {
            self.makes((keys.len() + aggregates.len() + groupings.len()) * (COLUMN + EXPRESSION) + PART)?;
            let (plan, pairs) = self.aggregate(shared.clone(), &own_keys, set, &own_aggregates)?;
            let mut columns = Vec::new();
            for (at, name) in key_names.iter().enumerate() {
                let expr = match set.iter().position(|own| *own == at) {
                    Some(place) => pairs[place].1.clone(),
                    None => Typed::literal(&Value::Null, keys[at].ty)?.expr,
                };
                columns.push(expr.alias(name));
            }
            for collected in aggregates {
                columns.push(collected.column.expr.clone().alias(&collected.name));
            }
            for (arguments, name) in groupings.iter().zip(&grouping_names) {
                let bits = grouping_bits(arguments, keys, set)?;
                columns.push(Typed::literal(&Value::Int4(bits), Type::INT4)?.expr.alias(name));
            }
            let projection = Projection::try_new(columns, Arc::new(plan)).map_err(to_sql)?;
            branches.push(Arc::new(LogicalPlan::Projection(projection)));
        }
        let plan = if branches.len() == 1 {
            Arc::unwrap_or_clone(branches.remove(0))
        } else {
            LogicalPlan::Union(Union::try_new_with_loose_types(branches).map_err(to_sql)?)
        };
        let column = |name: String| Expr::Column(Column::new_unqualified(name));
        let pairs = keys.iter().zip(key_names).map(|(key, name)| (key.expr.clone(), column(name))).collect();
        let groupings = groupings.into_iter().zip(grouping_names).map(|(g, name)| (g, column(name))).collect();
        Ok((plan, Replacements { pairs, groupings }))
    }
}

/// The number that GROUPING returns in a set: a bit for each argument, set when it is not grouped
/// by.
fn grouping_bits(arguments: &[Expr], keys: &[Typed], set: &[usize]) -> Result<i32, SqlError> {
    arguments.iter().try_fold(0i32, |bits, argument| {
        let at = keys.iter().position(|key| key.expr == *argument).ok_or_else(bad_grouping)?;
        Ok(bits << 1 | i32::from(!set.contains(&at)))
    })
}

#[cold]
fn bad_grouping() -> SqlError {
    SqlError::new(
        SqlState::GROUPING_ERROR,
        "arguments to GROUPING must be grouping expressions of the associated query level",
    )
}

fn is_grouping(expr: &ast::Expr) -> bool {
    matches!(expr, ast::Expr::Rollup(_) | ast::Expr::Cube(_) | ast::Expr::GroupingSets(_))
        || row(expr).is_some_and(<[_]>::is_empty)
}

pub(super) fn aggregate_expr(function: Aggregate, args: Vec<Expr>) -> Expr {
    filtered(function, args, None)
}

/// An aggregate over the rows for which a condition holds.
pub(super) fn filtered(function: Aggregate, args: Vec<Expr>, filter: Option<Expr>) -> Expr {
    Expr::AggregateFunction(AggregateFunction {
        func: Arc::new(AggregateUDF::from(function)),
        params: AggregateFunctionParams {
            args,
            distinct: false,
            filter: filter.map(Box::new),
            order_by: Vec::new(),
            null_treatment: None,
        },
    })
}

/// Puts the second expression of a pair wherever the first, a column, stands.
pub(super) fn replace(expr: Expr, columns: &[(Column, Expr)]) -> Result<Expr, SqlError> {
    expr.transform_down(|expr| {
        Ok(match &expr {
            Expr::Column(column) => match columns.iter().find(|(from, _)| from == column) {
                Some((_, to)) => Transformed::new(to.clone(), true, TreeNodeRecursion::Jump),
                None => Transformed::no(expr),
            },
            _ => Transformed::no(expr),
        })
    })
    .map(|transformed| transformed.data)
    .map_err(to_sql)
}

/// The calls of GROUPING in an expression.
pub(super) fn groupings_in(expr: &Expr, found: &mut Vec<Vec<Expr>>) -> Result<(), SqlError> {
    expr.apply(|expr| {
        if let Some((_, arguments)) = called::<Grouping>(expr)
            && !found.iter().any(|known| known == arguments)
        {
            found.push(arguments.to_vec());
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map(drop)
    .map_err(to_sql)
}

impl Replacements {
    /// The column that a key has become.
    pub fn key(&self, at: usize) -> Option<Expr> {
        self.pairs.get(at).map(|(_, to)| to.clone())
    }

    /// An expression as it is behind the grouping. `own` are the columns that are made there;
    /// `describe` names others in errors.
    ///
    /// # Errors
    /// 42803 when it sees something that is not grouped by.
    pub fn apply(
        &self,
        typed: Typed,
        own: &HashSet<String>,
        describe: &dyn Fn(&Column) -> String,
    ) -> Result<Typed, SqlError> {
        let mut failed = None;
        let replaced = typed.expr.transform_down(|expr| {
            if let Some((_, to)) = self.pairs.iter().find(|(from, _)| *from == expr) {
                return Ok(Transformed::new(to.clone(), true, TreeNodeRecursion::Jump));
            }
            if let Some((_, arguments)) = called::<Grouping>(&expr) {
                let to = self.groupings.iter().find(|(known, _)| known == arguments);
                let to = to.map_or_else(|| expr.clone(), |(_, to)| to.clone());
                return Ok(Transformed::new(to, true, TreeNodeRecursion::Jump));
            }
            match &expr {
                Expr::Column(column) if column.relation.is_some() || !own.contains(&column.name) => {
                    failed = Some(describe(column));
                    Ok(Transformed::new(expr, false, TreeNodeRecursion::Stop))
                }
                _ => Ok(Transformed::no(expr)),
            }
        });
        let expr = replaced.map_err(to_sql)?.data;
        match failed {
            None => Ok(Typed::new(expr, typed.ty)),
            Some(column) => Err(SqlError::new(
                SqlState::GROUPING_ERROR,
                format!("column \"{column}\" must appear in the GROUP BY clause or be used in an aggregate function"),
            )),
        }
    }

    /// Checks the arguments of GROUPING.
    ///
    /// # Errors
    /// 42803 when one is not grouped by.
    pub fn check_groupings(&self, keys: &[Typed]) -> Result<(), SqlError> {
        let known = |argument: &Expr| keys.iter().any(|key| key.expr == *argument);
        if self.groupings.iter().all(|(arguments, _)| arguments.iter().all(known)) {
            Ok(())
        } else {
            Err(bad_grouping())
        }
    }
}

/// An entry of SELECT's list.
pub(super) struct ListItem<'a> {
    pub name: String,
    pub source: ListSource<'a>,
}

pub(super) enum ListSource<'a> {
    Expr(&'a ast::Expr),
    /// What `*` stands for.
    Column(Typed),
}

impl ListItem<'_> {
    pub(super) fn bound(&self, typed: Typed) -> Item {
        Item { name: self.name.clone(), typed }
    }
}
