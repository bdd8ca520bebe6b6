//! A client shows who it is.

use base64::{Engine, prelude::BASE64_STANDARD};

use crate::{
    backend::{Access, Proof},
    message::{Body, Fault},
    report::{Report, SqlState},
    scram::{self, Exchange, Refused, Verifier},
    start_up::{End, Starting},
};

/// The longest message of a proof.
const LONGEST: usize = 4096;

/// Requests for proofs, and their end.
const OK: i32 = 0;
const PASSWORD: i32 = 3;
const SASL: i32 = 10;
const SASL_CONTINUE: i32 = 11;
const SASL_FINAL: i32 = 12;

/// Asks a client for the proof that is wanted of it; returns when it has given it.
pub(crate) fn prove(starting: &mut Starting<'_>, user: &str, access: &Access) -> Result<(), End> {
    let proved = match access.proof.clone() {
        Proof::None => Ok(()),
        Proof::Scram(verifier) => by_scram(starting, user, verifier),
        Proof::Password(verifier) => by_password(starting, user, verifier),
    };
    proved.map_err(|end| match (end, access.hint) {
        (End::Reported(report), Some(hint)) if report.state() == SqlState::INVALID_PASSWORD => {
            End::Reported(report.hint(hint))
        }
        (end, _) => end,
    })?;
    ask(starting, OK, b"");
    Ok(())
}

fn ask(starting: &mut Starting<'_>, what: i32, more: &[u8]) {
    let mut message = starting.out.begin(b'R');
    message.i32(what);
    message.bytes(more);
    message.end();
}

fn wrong(user: &str) -> End {
    let message = format!("password authentication failed for user \"{user}\"");
    End::Reported(Report::fatal(SqlState::INVALID_PASSWORD, message))
}

fn by_password(starting: &mut Starting<'_>, user: &str, verifier: Option<Verifier>) -> Result<(), End> {
    if starting.peer.encryption.is_none() {
        let message = "a password in clear text is accepted through TLS only";
        return Err(End::Reported(Report::fatal(SqlState::INVALID_AUTHORIZATION, message)));
    }
    ask(starting, PASSWORD, b"");
    let known = verifier.is_some();
    let verifier = verifier.unwrap_or_else(|| Verifier::decoy(user, &starting.shared.decoy));
    let mut matches = false;
    starting.proof(LONGEST, |body| {
        let mut body = Body(body);
        let password = body.string()?;
        body.end()?;
        matches = std::str::from_utf8(password).is_ok_and(|password| verifier.matches(password));
        Ok(())
    })?;
    if known && matches { Ok(()) } else { Err(wrong(user)) }
}

fn by_scram(starting: &mut Starting<'_>, user: &str, verifier: Option<Verifier>) -> Result<(), End> {
    let refused = |refused| match refused {
        Refused::Malformed(what) => End::Reported(Report::violation(format!("malformed SCRAM message: {what}"))),
        Refused::Unsupported(what) => {
            let message = format!("the client asks SCRAM for {what}, which is not supported");
            End::Reported(Report::fatal(SqlState::FEATURE_NOT_SUPPORTED, message))
        }
        Refused::Wrong => wrong(user),
    };
    let verifier = verifier.unwrap_or_else(|| Verifier::decoy(user, &starting.shared.decoy));
    let end_point = starting.tls.as_ref().and_then(|tls| tls.end_point().map(<[u8]>::to_vec));
    let mechanisms = match end_point {
        Some(_) => [scram::BOUND, "\0", scram::PLAIN, "\0\0"].concat(),
        None => [scram::PLAIN, "\0\0"].concat(),
    };
    let nonce = scram::random::<18>().map_err(|cause| {
        End::Reported(Report::fatal(SqlState::INTERNAL_ERROR, format!("cannot get a nonce: {cause}")))
    })?;
    let nonce = BASE64_STANDARD.encode(nonce);

    ask(starting, SASL, mechanisms.as_bytes());
    let mut begun = None;
    starting.proof(LONGEST, |body| {
        let mut body = Body(body);
        let bound = match body.string()? {
            name if name == scram::PLAIN.as_bytes() => false,
            name if name == scram::BOUND.as_bytes() && end_point.is_some() => true,
            _ => return Err(Fault::Malformed("no mechanism that was offered")),
        };
        let length = usize::try_from(body.i32()?).map_err(|_| Fault::Malformed("it has no first message"))?;
        let message = body.bytes(length)?;
        body.end()?;
        begun = Some(Exchange::begin(verifier, end_point.as_deref(), bound, message, &nonce));
        Ok(())
    })?;
    let (exchange, answer) = begun.ok_or(End::Quiet)?.map_err(refused)?;

    ask(starting, SASL_CONTINUE, answer.as_bytes());
    let mut finished = None;
    starting.proof(LONGEST, |body| {
        finished = Some(exchange.finish(body));
        Ok(())
    })?;
    let answer = finished.ok_or(End::Quiet)?.map_err(refused)?;
    ask(starting, SASL_FINAL, answer.as_bytes());
    Ok(())
}
