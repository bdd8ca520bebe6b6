//! From a connection to a session: TLS or not, the start-up packet, the proof, the opening.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    backend::{FailedLogin, Peer},
    delay::Place,
    input::Input,
    message::Fault,
    out::Out,
    packet::{LONGEST, MAJOR, Packet, Startup},
    proof::prove,
    registry::{LONG_KEY, Seat, Wanted},
    report::{Report, SqlState},
    server::Shared,
    tls::Tls,
    transport::Received,
};

/// The newest version that is spoken is 3.2; its minor number.
const NEWEST: i32 = 2;
/// From this minor number on, keys for canceling are longer.
const LONG_KEYS_SINCE: i32 = 2;
/// The role under which guesses of keys are counted: no real role has this name.
const CANCELING: &str = "\0";
/// How a TLS record begins that shakes hands.
const HANDSHAKE: u8 = 0x16;

/// How a connection ends.
#[derive(Debug)]
pub(crate) enum End {
    /// Its client wanted that, or is not there any more.
    Quiet,
    /// Its client has gone without a word.
    Abandoned,
    /// Its client gets this report.
    Reported(Report),
    /// Its client has failed to authenticate, or to cancel: the answer, if any, is delayed.
    Delayed(Option<Report>, Box<Delayed>),
}

/// A refusal that is to wait.
#[derive(Debug)]
pub(crate) struct Delayed {
    pub(crate) after: Duration,
    pub(crate) place: Place,
    pub(crate) user: String,
}

/// A malformed message ends a connection that has no session yet.
impl From<Fault> for End {
    fn from(fault: Fault) -> Self {
        Self::Reported(fault.into_report().into_fatal())
    }
}

/// A connection that has no session yet.
pub(crate) struct Starting<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) seat: &'a Seat,
    pub(crate) input: &'a mut Input,
    pub(crate) out: &'a mut Out,
    pub(crate) peer: Peer,
    /// What TLS was begun with, once it was.
    pub(crate) tls: Option<Tls>,
    clock: Clock,
}

/// How long a client may take.
struct Clock {
    /// When it has had its time.
    end: Instant,
    /// When it is looked up whether others wait for its place; never after `end`.
    next_look: Instant,
    step: Duration,
}

/// Nobody may take longer, whatever the limits say.
const LONGEST_START: Duration = Duration::from_secs(24 * 3600);
/// How long any client may take, whatever waits.
const FAIR: Duration = Duration::from_millis(500);

impl<'a> Starting<'a> {
    pub(crate) fn new(shared: &'a Shared, seat: &'a Seat, input: &'a mut Input, out: &'a mut Out, peer: Peer) -> Self {
        let now = Instant::now();
        let whole = shared.limits.start_up.min(LONGEST_START);
        let step = FAIR.min(whole / 10);
        let clock = Clock { end: now + whole, next_look: now + step, step };
        Self { shared, seat, input, out, peer, tls: None, clock }
    }

    /// Goes as far as to know who it is, and to have a seat for him.
    pub(crate) fn admit(&mut self) -> Result<Startup, End> {
        let startup = self.startup()?;
        self.check(&startup)?;
        if startup.version() >= MAJOR << 16 | LONG_KEYS_SINCE {
            self.seat.entry.use_long_key();
        }
        let place = Place::of(&self.peer.origin);
        let access = self.shared.backend.access(&startup, &self.peer).map_err(|reply| {
            self.failed(&startup, &reply, None, Duration::ZERO);
            End::Reported(reply)
        })?;
        prove(self, startup.user(), &access).map_err(|end| match end {
            // Who was asked for a proof gets the reply that it took too long.
            End::Quiet if self.is_late() => {
                let message = "canceling authentication due to timeout";
                End::Reported(Report::fatal(SqlState::QUERY_CANCELED, message))
            }
            End::Reported(reply) if reply.state() == SqlState::INVALID_PASSWORD => {
                let (after, _) = self.shared.delays.failed(place, startup.user());
                self.failed(&startup, &reply, access.hopeless.or(Some("it does not know the password")), after);
                if after.is_zero() {
                    return End::Reported(reply);
                }
                End::Delayed(Some(reply), Box::new(Delayed { after, place, user: startup.user().to_owned() }))
            }
            end => end,
        })?;
        if let Some(reply) = access.refused {
            self.failed(&startup, &reply, None, Duration::ZERO);
            return Err(End::Reported(reply));
        }
        let wanted = Wanted {
            user: startup.user(),
            superuser: access.superuser,
            connections: access.connections,
            covered: false,
        };
        self.seat.take(&wanted, &self.shared.limits).map_err(End::Reported)?;
        let failures = self.shared.delays.failures(place, startup.user());
        self.shared.backend.logged_in(&self.peer, &startup, failures);
        Ok(startup)
    }

    fn failed(&self, startup: &Startup, reply: &Report, why: Option<&str>, after: Duration) {
        self.shared.backend.failed_login(&FailedLogin { peer: &self.peer, startup, reply, why, after });
    }

    /// Packets up to the one that asks for a session.
    fn startup(&mut self) -> Result<Startup, End> {
        // Encryption may be asked for once in each way.
        let (mut tls_answered, mut gss_answered) = (false, false);
        loop {
            let first = !tls_answered && !gss_answered;
            if first && self.wait_for(1)? && self.input.bytes()[0] == HANDSHAKE && self.secure_at_once()? {
                tls_answered = true;
            }
            match self.packet()? {
                Packet::Tls if !tls_answered => {
                    tls_answered = true;
                    self.answer_tls()?;
                }
                Packet::Gss if !gss_answered => {
                    gss_answered = true;
                    self.out.byte(b'N');
                    self.out.flush();
                }
                Packet::Tls | Packet::Gss => {
                    return Err(End::Reported(Report::violation("encryption was asked for and answered already")));
                }
                Packet::Cancel { pid, secret } => {
                    return Err(self.cancel(pid, &secret));
                }
                Packet::Startup(startup) => return Ok(startup),
            }
        }
    }

    /// Cancels what a session does, if its key is right. The client gets no answer, but one that
    /// guesses is delayed.
    fn cancel(&self, pid: i32, key: &[u8]) -> End {
        let place = Place::of(&self.peer.origin);
        // Long keys cannot be guessed.
        if key.len() < LONG_KEY && self.shared.delays.admit(place, CANCELING).is_err() {
            return End::Quiet;
        }
        if self.seat.registry().cancel(pid, key) {
            return End::Quiet;
        }
        let (after, _) = self.shared.delays.failed(place, CANCELING);
        if after.is_zero() {
            return End::Quiet;
        }
        End::Delayed(None, Box::new(Delayed { after, place, user: CANCELING.to_owned() }))
    }

    fn packet(&mut self) -> Result<Packet, End> {
        self.wait_for(4)?;
        let Some(&length) = self.input.bytes().first_chunk() else { return Err(End::Quiet) };
        let length = usize::try_from(i32::from_be_bytes(length)).ok();
        let length = length.filter(|length| (8..=LONGEST).contains(length));
        let length =
            length.ok_or_else(|| Report::violation("invalid length of startup packet")).map_err(End::Reported)?;
        self.wait_for(length)?;
        if self.tls.is_some() && self.peer.encryption.is_none() {
            self.peer.encryption = self.out.transport().encryption();
            self.peer.certificate = self.out.transport().certificate_name().map(Arc::from);
        }
        let packet = Packet::decode(&self.input.bytes()[4..length])?;
        self.input.consume(length);
        Ok(packet)
    }

    fn answer_tls(&mut self) -> Result<(), End> {
        let Some(tls) = self.shared.tls() else {
            self.out.byte(b'N');
            self.out.flush();
            return Ok(());
        };
        // Something sent before the handshake would seem to have come through TLS.
        if !self.input.bytes().is_empty() {
            return Err(End::Reported(Report::violation("received unencrypted data after the request for TLS")));
        }
        self.out.byte(b'S');
        self.out.flush();
        self.out.transport().secure(&tls, b"").map_err(|_| End::Quiet)?;
        self.tls = Some(tls);
        Ok(())
    }

    /// TLS without having asked; the client has to say inside that it means this protocol.
    fn secure_at_once(&mut self) -> Result<bool, End> {
        let Some(tls) = self.shared.tls() else { return Ok(false) };
        self.out.transport().secure(&tls, self.input.bytes()).map_err(|_| End::Quiet)?;
        self.input.consume(usize::MAX);
        self.tls = Some(tls);
        self.wait_for(1)?;
        if !self.out.transport().is_agreed() {
            return Err(End::Reported(Report::violation("direct TLS needs the application protocol \"postgresql\"")));
        }
        Ok(true)
    }

    /// What is said in a start-up packet that this server cannot do, or must be told.
    fn check(&mut self, startup: &Startup) -> Result<(), End> {
        if let Some(extensions) = startup.beyond(NEWEST) {
            let mut message = self.out.begin(b'v');
            message.i32(startup.version().min(MAJOR << 16 | NEWEST));
            message.i32(extensions.len().try_into().unwrap_or(i32::MAX));
            extensions.iter().for_each(|name| message.string(name));
            message.end();
        }
        if startup.user().is_empty() {
            let message = "no PostgreSQL user name specified in startup packet";
            return Err(End::Reported(Report::fatal(SqlState::INVALID_AUTHORIZATION, message)));
        }
        let off = ["false", "off", "no", "0"];
        if startup.get("replication").is_some_and(|value| !off.contains(&value)) {
            let message = "PostgreSQL's replication protocol is not spoken here";
            return Err(End::Reported(Report::fatal(SqlState::FEATURE_NOT_SUPPORTED, message)));
        }
        Ok(())
    }

    /// Waits for a message of a proof, no longer than `longest`, and has it understood.
    pub(crate) fn proof(
        &mut self,
        longest: usize,
        understand: impl FnOnce(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), End> {
        self.out.flush();
        loop {
            if let Some(&kind) = self.input.bytes().first()
                && kind != b'p'
            {
                let gone = kind == b'X';
                let message = format!("expected password response, got message type {kind}");
                return Err(if gone { End::Quiet } else { End::Reported(Report::violation(message)) });
            }
            if let Some(frame) = self.input.next_frame(longest)? {
                return Ok(understand(self.input.body(&frame))?);
            }
            self.more()?;
        }
    }

    /// Waits until this many bytes are there; always true.
    fn wait_for(&mut self, count: usize) -> Result<bool, End> {
        while self.input.bytes().len() < count {
            self.more()?;
        }
        Ok(true)
    }

    fn more(&mut self) -> Result<(), End> {
        loop {
            // Also who says something again and again has his time, and no more.
            if Instant::now() >= self.clock.next_look {
                if self.is_late() || self.seat.registry().is_crowded(&self.shared.limits) {
                    return Err(End::Quiet);
                }
                self.clock.next_look = self.clock.end.min(Instant::now() + self.clock.step);
            }
            match self.input.fill(self.out.transport(), Some(self.clock.next_look), None) {
                Received::Bytes(_) => return Ok(()),
                Received::Late => {}
                Received::Rung | Received::End => return Err(End::Quiet),
            }
        }
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.clock.end
    }
}
