//! What is done to syntax as soon as it is there: long chains of conditions become trees that are
//! not deep, and what would be read as something else when it is written down gets parentheses.

use std::{mem, ops::ControlFlow};

use sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Query, Value, VisitMut, VisitorMut,
    helpers::attached_token::AttachedToken,
};

use super::rows;

/// Makes chains of AND, and of OR, trees whose depth is the logarithm of their length. It is the
/// same condition, evaluated in the same order, and written in the same way. Signs that stand
/// before signs get parentheses: two minus signs in a row begin a comment.
pub fn balance(syntax: &mut impl VisitMut) {
    let _ = syntax.visit(&mut Balance);
}

/// This many conditions may be a chain.
const SHORT: usize = 32;

struct Balance;

impl VisitorMut for Balance {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        rows::settle_order(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        rows::settle(expr);
        if let Expr::UnaryOp { expr: operand, .. } = expr
            && matches!(**operand, Expr::UnaryOp { .. })
        {
            **operand = Expr::Nested(Box::new(take(operand)));
        }
        // `f(t.*)` is a call of a function of a row.
        if let Expr::Function(function) = expr
            && let FunctionArguments::List(list) = &mut function.args
        {
            for argument in &mut list.args {
                if let FunctionArg::Unnamed(argument) = argument
                    && let FunctionArgExpr::QualifiedWildcard(table) = argument
                {
                    let row = Expr::QualifiedWildcard(table.clone(), AttachedToken::empty());
                    *argument = FunctionArgExpr::Expr(row);
                }
            }
        }
        for operator in [BinaryOperator::And, BinaryOperator::Or] {
            let mut links = 0;
            let mut link = &*expr;
            while let Expr::BinaryOp { left, op, .. } = link
                && *op == operator
            {
                (links, link) = (links + 1, left);
            }
            // What was balanced has no long chains any more: its parts are looked at next.
            if links <= SHORT {
                continue;
            }
            let mut parts = Vec::new();
            let mut rest = take(expr);
            loop {
                match rest {
                    Expr::BinaryOp { left, op, right } if op == operator => {
                        parts.push(*right);
                        rest = *left;
                    }
                    first => {
                        parts.push(first);
                        break;
                    }
                }
            }
            parts.reverse();
            *expr = joined(parts, &operator);
        }
        ControlFlow::Continue(())
    }
}

fn take(expr: &mut Expr) -> Expr {
    mem::replace(expr, Expr::value(Value::Null))
}

/// Joins conditions, neighbours with neighbours.
fn joined(mut parts: Vec<Expr>, operator: &BinaryOperator) -> Expr {
    while parts.len() > 1 {
        let mut pairs = Vec::with_capacity(parts.len().div_ceil(2));
        let mut rest = parts.into_iter();
        while let Some(left) = rest.next() {
            pairs.push(match rest.next() {
                Some(right) => Expr::BinaryOp { left: Box::new(left), op: operator.clone(), right: Box::new(right) },
                None => left,
            });
        }
        parts = pairs;
    }
    parts.pop().unwrap_or(Expr::value(Value::Null))
}

#[cfg(test)]
mod tests {
    use sqlparser::{ast::Statement, parser::Parser};

    use super::*;

    fn depth(expr: &Expr) -> usize {
        match expr {
            Expr::BinaryOp { left, right, .. } => 1 + depth(left).max(depth(right)),
            Expr::Nested(inner) => depth(inner),
            _ => 0,
        }
    }

    #[test]
    fn signs_stay_apart() {
        for (sql, expected) in
            [("- - 1", "-(-1)"), ("NOT NOT a", "NOT (NOT a)"), ("@ - - 1", "@(-(-1))"), ("- (- 1)", "-(-1)")]
        {
            let mut expr = Parser::new(&super::super::PostgreSql).try_with_sql(sql).unwrap().parse_expr().unwrap();
            balance(&mut expr);
            assert_eq!(expr.to_string(), expected, "{sql}");
        }
    }

    #[test]
    fn chains_become_trees_and_read_the_same() {
        for (count, deepest) in [(1, 1), (2, 2), (33, 33), (34, 7), (1000, 11), (5000, 14)] {
            let conditions: Vec<_> = (0..count).map(|n| format!("a = {n}")).collect();
            for word in [" AND ", " OR "] {
                let sql = format!("SELECT 1 WHERE {}", conditions.join(word));
                let mut statements = Parser::parse_sql(&super::super::PostgreSql, &sql).unwrap();
                balance(&mut statements[0]);
                assert_eq!(statements[0].to_string(), sql);
                let Statement::Query(query) = &statements[0] else { panic!("it is a query") };
                let condition = query.body.as_select().unwrap().selection.as_ref().unwrap();
                assert!(depth(condition) <= deepest, "{count}: {}", depth(condition));
            }
        }
    }
}
