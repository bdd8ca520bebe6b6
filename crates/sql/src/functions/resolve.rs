//! The choice among overloads, by PostgreSQL's rules.

use super::{Function, named};
use crate::{
    SqlError, SqlState,
    types::{Category, Kind, Type, implicitly},
};

/// The function that a call means, and what its arguments become.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The function that fits best.
    pub function: &'static Function,
    /// What each argument is to be cast to; `any` where it stays as it is.
    pub arguments: Vec<Kind>,
    /// What the call returns.
    pub result: Kind,
}

/// A function that could be meant, with a kind for each argument of the call.
struct Candidate {
    function: &'static Function,
    arguments: Vec<Kind>,
}

/// Chooses the function or operator of a name for arguments of these kinds, `unknown` being quoted
/// literals and untyped parameters.
///
/// # Errors
/// 42883 when none exists, 42725 when none is better than the others.
pub fn resolve(name: &str, arguments: &[Kind]) -> Result<Resolved, SqlError> {
    let candidates: Vec<_> =
        named(name).iter().filter_map(|function| Candidate::of(function, arguments.len())).collect();
    let Some(chosen) = choose(candidates, arguments, is_operator(name)).map_err(|()| ambiguous(name, arguments))?
    else {
        return Err(missing(name, arguments));
    };
    let Candidate { function, arguments: declared } = chosen;
    let element = element_kind(function, &declared, arguments)?;
    let concrete = |kind: Kind| -> Result<Kind, SqlError> {
        match (kind, element) {
            (Kind::AnyElement, Some(element)) => Ok(element),
            (Kind::AnyArray, Some(element)) => element.array().ok_or_else(|| {
                SqlError::new(SqlState::UNDEFINED_OBJECT, format!("could not find array type for data type {element}"))
            }),
            (kind, _) => Ok(kind),
        }
    };
    let resolved = declared
        .iter()
        .zip(arguments)
        .map(|(declared, given)| match declared {
            declared if shows(function, *declared) && shown(*given) != *given => Ok(shown(*given)),
            // What a vector is to its elements' array needs no cast.
            Kind::AnyArray if given.is_array() && given.element() == element => Ok(*given),
            declared => concrete(*declared),
        })
        .collect::<Result<_, _>>()?;
    Ok(Resolved { function, arguments: resolved, result: concrete(function.result)? })
}

/// Whether a function shows what it gets there, whatever that is.
fn shows(function: &Function, declared: Kind) -> bool {
    let alone =
        || matches!(function.arguments, [Kind::AnyElement | Kind::AnyArray]) && !function.result.is_polymorphic();
    matches!(declared, Kind::Any | Kind::AnyNonArray) || declared.is_polymorphic() && alone()
}

/// As what a value is shown by what does not know its kind, and so not of what an id is: that one's
/// name.
pub fn shown(kind: Kind) -> Kind {
    match kind.element() {
        None if kind.is_object_alias() => Kind::Text,
        Some(element) if element.is_object_alias() => Kind::TextArray,
        _ => kind,
    }
}

fn is_operator(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

impl Candidate {
    fn of(function: &'static Function, count: usize) -> Option<Self> {
        let declared = function.arguments;
        if function.variadic {
            let last = *declared.last()?;
            if count < declared.len() {
                return None;
            }
            let repeated = std::iter::repeat_n(last, count - declared.len());
            return Some(Self { function, arguments: declared.iter().copied().chain(repeated).collect() });
        }
        (declared.len() == count).then(|| Self { function, arguments: declared.to_vec() })
    }

    /// Whether the arguments can become what it takes.
    fn accepts(&self, given: &[Kind]) -> bool {
        self.arguments.iter().zip(given).all(|(declared, given)| accepts(*declared, *given))
            && element_kind(self.function, &self.arguments, given).is_ok()
    }

    fn exact(&self, given: &[Kind]) -> usize {
        self.arguments.iter().zip(given).filter(|(declared, given)| declared == given).count()
    }
}

/// Whether an argument of one kind can be given where another is declared.
pub(super) fn accepts(declared: Kind, given: Kind) -> bool {
    match declared {
        Kind::Any | Kind::AnyElement => true,
        Kind::AnyNonArray => !given.is_array(),
        Kind::AnyArray => given.is_array() || given == Kind::Unknown,
        _ => implicitly(given, declared),
    }
}

/// The element's kind that all polymorphic arguments agree on; nothing when there are none. To
/// operators but `||` they have to be alike; others make them so.
fn element_kind(function: &Function, declared: &[Kind], given: &[Kind]) -> Result<Option<Kind>, SqlError> {
    if !declared.iter().any(|kind| matches!(kind, Kind::AnyArray | Kind::AnyElement)) {
        return Ok(None);
    }
    let elements: Vec<Kind> = declared
        .iter()
        .zip(given)
        .filter_map(|(declared, given)| match declared {
            Kind::AnyElement => Some(*given),
            Kind::AnyArray => Some(given.element().unwrap_or(Kind::Unknown)),
            _ => None,
        })
        .collect();
    let common = common_kind(&elements, "arguments")?;
    let alike = elements.iter().all(|element| [Kind::Unknown, common].contains(element));
    if !alike && function.is_operator() && function.name != "||" {
        return Err(missing(function.name, given));
    }
    Ok(Some(common))
}

/// The best candidate; nothing when none fits, an error when several are equally good.
fn choose(candidates: Vec<Candidate>, given: &[Kind], operator: bool) -> Result<Option<Candidate>, ()> {
    // A literal beside a known operand is first taken to be of its kind.
    let assumed = match *given {
        [Kind::Unknown, known] | [known, Kind::Unknown] if operator && known != Kind::Unknown => Some([known, known]),
        _ => None,
    };
    let exactly = assumed.as_ref().map_or(given, |assumed| &assumed[..]);
    if let Some(at) = candidates.iter().position(|candidate| candidate.arguments == exactly) {
        return Ok(candidates.into_iter().nth(at));
    }
    let mut candidates: Vec<_> = candidates.into_iter().filter(|candidate| candidate.accepts(given)).collect();
    if candidates.len() <= 1 {
        return Ok(candidates.pop());
    }
    keep_best(&mut candidates, |candidate| candidate.exact(given));
    if candidates.len() == 1 {
        return Ok(candidates.pop());
    }
    // Preferred kinds count as much as exact ones.
    keep_best(&mut candidates, |candidate| {
        let good = |(declared, given): &(&Kind, &Kind)| {
            **given != Kind::Unknown
                && (declared == given || declared.is_preferred() && declared.category() == given.category())
        };
        candidate.arguments.iter().zip(given).filter(good).count()
    });
    if candidates.len() == 1 {
        return Ok(candidates.pop());
    }
    if !given.contains(&Kind::Unknown) {
        return Err(());
    }
    narrow_by_category(&mut candidates, given);
    if candidates.len() == 1 {
        return Ok(candidates.pop());
    }
    // If all that is known is of one kind, the rest may be, too.
    let mut known = given.iter().filter(|kind| **kind != Kind::Unknown);
    if let Some(first) = known.next()
        && known.all(|kind| kind == first)
    {
        let uniform = vec![*first; given.len()];
        candidates.retain(|candidate| candidate.accepts(&uniform));
        if candidates.len() == 1 {
            return Ok(candidates.pop());
        }
    }
    Err(())
}

/// Keeps the candidates with the highest number, unless that is zero.
fn keep_best(candidates: &mut Vec<Candidate>, number: impl Fn(&Candidate) -> usize) {
    let best = candidates.iter().map(&number).max().unwrap_or(0);
    if best > 0 {
        candidates.retain(|candidate| number(candidate) == best);
    }
}

/// Chooses a category for each unknown argument: strings if possible, else the one that all
/// candidates take.
fn narrow_by_category(candidates: &mut Vec<Candidate>, given: &[Kind]) {
    let mut wanted = Vec::new();
    for (at, kind) in given.iter().enumerate() {
        if *kind != Kind::Unknown {
            continue;
        }
        let categories = || candidates.iter().map(|candidate| candidate.arguments[at].category());
        let category = if categories().any(|category| category == Category::String) {
            Category::String
        } else {
            let first = candidates[0].arguments[at].category();
            if categories().any(|category| category != first) {
                return;
            }
            first
        };
        let preferred = candidates
            .iter()
            .any(|candidate| candidate.arguments[at].category() == category && candidate.arguments[at].is_preferred());
        wanted.push((at, category, preferred));
    }
    let fits = |candidate: &Candidate| {
        wanted.iter().all(|&(at, category, preferred)| {
            let kind = candidate.arguments[at];
            kind.category() == category && (!preferred || kind.is_preferred())
        })
    };
    if candidates.iter().any(fits) {
        candidates.retain(fits);
    }
}

/// Checks that COLLATE can stand behind a value of this type.
///
/// # Errors
/// 42804 when it is of a type that has no collations.
pub fn check_collatable(ty: Type) -> Result<(), SqlError> {
    let kind = ty.element().map_or(ty.kind(), Type::kind);
    match kind {
        Kind::Unknown | Kind::Text | Kind::Varchar | Kind::Char | Kind::Name => Ok(()),
        _ => {
            let message = format!("collations are not supported by type {}", ty.kind());
            Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message))
        }
    }
}

/// The kind that values of these kinds have in common: for CASE, COALESCE, UNION, IN and arrays.
/// Nothing but literals is text. `what` they are is named in errors.
///
/// # Errors
/// 42804 when none exists.
pub fn common_kind(kinds: &[Kind], what: &str) -> Result<Kind, SqlError> {
    let mismatch = |one: Kind, two: Kind| {
        Err(SqlError::new(SqlState::DATATYPE_MISMATCH, format!("{what} types {one} and {two} cannot be matched")))
    };
    let mut common = Kind::Unknown;
    for &kind in kinds {
        if kind == Kind::Unknown || kind == common {
            continue;
        }
        if common == Kind::Unknown {
            common = kind;
        } else if kind.category() != common.category() {
            return mismatch(common, kind);
        } else if !common.is_preferred() && implicitly(common, kind) && !implicitly(kind, common) {
            common = kind;
        }
    }
    if common == Kind::Unknown {
        return Ok(Kind::Text);
    }
    match kinds.iter().find(|kind| !implicitly(**kind, common)) {
        Some(&kind) => mismatch(common, kind),
        None => Ok(common),
    }
}

/// How a call is named in errors.
fn signature(name: &str, arguments: &[Kind]) -> String {
    if !is_operator(name) {
        let kinds: Vec<_> = arguments.iter().map(|kind| kind.sql_name()).collect();
        return format!("{name}({})", kinds.join(", "));
    }
    match arguments {
        [right] => format!("{name} {right}"),
        [left, right] => format!("{left} {name} {right}"),
        _ => name.to_owned(),
    }
}

#[cold]
fn missing(name: &str, arguments: &[Kind]) -> SqlError {
    let signature = signature(name, arguments);
    if !is_operator(name) {
        return SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("function {signature} does not exist")).with_hint(
            "No function matches the given name and argument types. You might need to add explicit type casts.",
        );
    }
    let hint = match arguments {
        [_] => "No operator matches the given name and argument type. You might need to add an explicit type cast.",
        _ => "No operator matches the given name and argument types. You might need to add explicit type casts.",
    };
    SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("operator does not exist: {signature}")).with_hint(hint)
}

/// The error for a function that several candidates take.
#[cold]
pub fn ambiguous(name: &str, arguments: &[Kind]) -> SqlError {
    let signature = signature(name, arguments);
    let (message, hint) = if is_operator(name) {
        (
            format!("operator is not unique: {signature}"),
            "Could not choose a best candidate operator. You might need to add explicit type casts.",
        )
    } else {
        (
            format!("function {signature} is not unique"),
            "Could not choose a best candidate function. You might need to add explicit type casts.",
        )
    };
    SqlError::new(SqlState::AMBIGUOUS_FUNCTION, message).with_hint(hint)
}
