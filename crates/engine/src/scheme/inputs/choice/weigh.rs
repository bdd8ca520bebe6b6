//! What speaks for bytes and what for inputs, in shares: how [`Choice`](super::Choice) decides, and
//! what `freshet advise` says.

/// The link is full when it is busy for this share of the time.
const FULL: f64 = 0.7;
/// Inputs must take less than this share of what bytes take.
const SHORTER: f64 = 0.8;
/// Executing needs this share of the processors to be idle before it begins.
const IDLE: f64 = 0.15;
/// The link is wide enough for bytes when these would keep it busy for no more than this share.
const WIDE: f64 = 0.5;

/// Whether a link is full that is busy for this share of the time.
pub fn is_full(busy: f64) -> bool {
    busy >= FULL
}

/// Whether a link is wide enough for bytes that these would keep busy for this share of the time.
pub fn is_wide(busy: f64) -> bool {
    busy <= WIDE
}

/// How many bytes a second a link carries that is busy for this share of the time with `carried` of
/// them. Nothing while it is busy for so little that this would say more of latencies.
pub fn carries(carried: f64, busy: f64) -> Option<f64> {
    (busy >= WIDE).then(|| carried / busy)
}

/// For which share of the time the same transactions would keep a link busy if they took `other`
/// bytes where they take `now`. More than 1: it does not carry them.
pub fn busy_with(busy: f64, now: f64, other: f64) -> f64 {
    busy * other / now.max(1e-9)
}

/// Whether inputs, which take this much, are worth asking for where bytes take that much.
pub fn is_shorter(inputs: f64, bytes: f64) -> bool {
    inputs < SHORTER * bytes
}

/// Whether processors can begin to execute transactions, where this share of them is idle, and
/// executing needs that share, as far as it is known.
pub fn can_execute(idle: f64, needs: f64) -> bool {
    idle >= needs.max(IDLE)
}
