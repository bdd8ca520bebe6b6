//! Rows as `ROW(…)`: they are written as `(…)`, which is compared element by element, and what
//! stands for several comparisons is taken apart.

use std::mem;

use sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments,
    OrderByExpr, OrderByKind, Query, Value, WindowType,
};

/// At an expression, before what is in it is looked at.
pub(super) fn settle(expr: &mut Expr) {
    make_row(expr);
    match expr {
        Expr::BinaryOp { left, right, .. } => {
            make_row(left);
            make_row(right);
        }
        Expr::Between { expr: operand, negated, low, high } => {
            [&mut *operand, &mut *low, &mut *high].into_iter().for_each(|it| make_row(it));
            if matches!(**operand, Expr::Tuple(_)) {
                let compared = |op, bound: &mut Box<Expr>| Expr::BinaryOp {
                    left: operand.clone(),
                    op,
                    right: mem::replace(bound, Box::new(Expr::value(Value::Null))),
                };
                let (from, to, join) = match negated {
                    true => (BinaryOperator::Lt, BinaryOperator::Gt, BinaryOperator::Or),
                    false => (BinaryOperator::GtEq, BinaryOperator::LtEq, BinaryOperator::And),
                };
                let (left, right) = (Box::new(compared(from, low)), Box::new(compared(to, high)));
                *expr = Expr::Nested(Box::new(Expr::BinaryOp { left, op: join, right }));
            }
        }
        Expr::InList { expr: operand, list, .. } => {
            make_row(operand);
            list.iter_mut().for_each(make_row);
        }
        Expr::InSubquery { expr: operand, .. } => make_row(operand),
        Expr::IsNull(operand) => {
            make_row(operand);
            if let Some(elements) = elements(operand) {
                *expr = all(elements, Expr::IsNull);
            }
        }
        Expr::IsNotNull(operand) => {
            make_row(operand);
            if let Some(elements) = elements(operand) {
                *expr = all(elements, Expr::IsNotNull);
            }
        }
        Expr::Function(Function { args, over, within_group, .. }) => {
            take_orders_apart(within_group);
            if let FunctionArguments::List(list) = args {
                for clause in &mut list.clauses {
                    if let FunctionArgumentClause::OrderBy(orders) = clause {
                        take_orders_apart(orders);
                    }
                }
            }
            if let Some(WindowType::WindowSpec(window)) = over {
                take_orders_apart(&mut window.order_by);
            }
        }
        _ => {}
    }
}

/// At a query, likewise.
pub(super) fn settle_order(query: &mut Query) {
    if let Some(order) = &mut query.order_by
        && let OrderByKind::Expressions(orders) = &mut order.kind
    {
        take_orders_apart(orders);
    }
}

/// `ROW(a, b)` is `(a, b)`. One of less than two elements, or with a table's row in it, stays: in
/// parentheses it would be something else.
fn make_row(expr: &mut Expr) {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), over: None, filter: None, .. }) = expr
    else {
        return;
    };
    let [name] = &*name.0 else { return };
    let is_row =
        name.as_ident().is_some_and(|name| name.quote_style.is_none() && name.value.eq_ignore_ascii_case("row"));
    let is_plain = |arg: &FunctionArg| matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Expr(it)) if !matches!(it, Expr::QualifiedWildcard(..)));
    if is_row && list.args.len() > 1 && list.clauses.is_empty() && list.args.iter().all(is_plain) {
        let elements = mem::take(&mut list.args).into_iter().filter_map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(element)) => Some(element),
            _ => None,
        });
        *expr = Expr::Tuple(elements.collect());
    }
}

/// The elements of a row of parentheses.
fn elements(expr: &mut Expr) -> Option<Vec<Expr>> {
    match expr {
        Expr::Tuple(elements) if !elements.is_empty() => Some(mem::take(elements)),
        Expr::Nested(inner) => elements(inner),
        _ => None,
    }
}

/// Something that is asked of all elements.
fn all(elements: Vec<Expr>, ask: impl Fn(Box<Expr>) -> Expr) -> Expr {
    let asked = elements.into_iter().map(|element| ask(Box::new(Expr::Nested(Box::new(element)))));
    let all = asked.reduce(|left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    });
    Expr::Nested(Box::new(all.unwrap_or(Expr::value(Value::Boolean(true)))))
}

/// `ORDER BY (a, b) DESC` is `ORDER BY a DESC, b DESC`. Constants order nothing, and by themselves
/// they would be numbers of columns.
fn take_orders_apart(orders: &mut Vec<OrderByExpr>) {
    orders.iter_mut().for_each(|order| make_row(&mut order.expr));
    let is_apart = |order: &OrderByExpr| matches!(&order.expr, Expr::Tuple(elements) if elements.iter().any(|it| !matches!(it, Expr::Value(_))));
    // NULLS FIRST and LAST speak of rows, which are not null here.
    if !orders.iter().any(|order| is_apart(order) && order.options.nulls_first.is_none()) {
        return;
    }
    for order in mem::take(orders) {
        match order {
            OrderByExpr { expr: Expr::Tuple(elements), options, with_fill: None }
                if options.nulls_first.is_none() && elements.iter().any(|it| !matches!(it, Expr::Value(_))) =>
            {
                let elements = elements.into_iter().filter(|it| !matches!(it, Expr::Value(_)));
                orders.extend(elements.map(|expr| OrderByExpr { expr, options, with_fill: None }));
            }
            order => orders.push(order),
        }
    }
}
