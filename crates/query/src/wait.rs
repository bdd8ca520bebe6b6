//! Waiting in a session: until something has come, or the statement that runs is to end.

use freshet_base::wait::Patience;
use freshet_sql::SqlError;

/// Waits for something until `interrupted` fails: in every wait of a session. It is asked when the
/// session is woken for it ([`Flag`](crate::session::interrupt::Flag)).
pub fn waiting<T>(interrupted: &dyn Fn() -> Result<(), SqlError>, wait: impl FnOnce(Patience<'_>) -> T) -> T {
    wait(Patience::endless().unless(&|| interrupted().is_err()))
}
