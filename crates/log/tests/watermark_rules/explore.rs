//! Breadth first through all states of a model, with a crash in each of them.

use std::{
    collections::HashSet,
    hash::{BuildHasherDefault, Hash, Hasher},
};

/// More states than any model here has.
const MOST: usize = 3_000_000;

/// What happened, and to whom.
pub type Step = (&'static str, usize);

/// Something that goes from state to state, and may crash in each.
pub trait Model {
    /// A state; equal ones are looked at once.
    type State: Clone + Eq + Hash;
    /// All of a state that is of any weight after a crash.
    type Left: Clone + Eq + Hash;

    /// Where it begins.
    fn start(&self) -> Self::State;

    /// All steps from `state`.
    ///
    /// # Errors
    /// What is wrong with one of them.
    fn steps(&self, state: &Self::State, into: &mut Vec<(Step, Self::State)>) -> Result<(), String>;

    /// What a crash leaves of `state`.
    fn left(&self, state: &Self::State) -> Self::Left;

    /// Whatever may be found after that crash; the states in which the next life begins, if there
    /// is one.
    ///
    /// # Errors
    /// What is wrong with one of them.
    fn crash(&self, left: &Self::Left, into: &mut Vec<(Step, Self::State)>) -> Result<(), String>;
}

/// FxHash: these states are small, and the test is built without optimisation.
#[derive(Default)]
struct Quick(u64);

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517C_C1B7_2722_0A95);
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

type Set<T> = HashSet<T, BuildHasherDefault<Quick>>;

/// Looks at every state that can be reached, the nearest first. Returns how many there are.
///
/// # Errors
/// What is wrong, and the shortest way there.
pub fn explore<M: Model>(model: &M) -> Result<usize, String> {
    let (mut known, mut crashed) = (Set::<M::State>::default(), Set::<M::Left>::default());
    // In the order in which they were found; where each came from, and how.
    let mut states = vec![model.start()];
    let mut ways: Vec<(usize, Step)> = vec![(0, ("start", 0))];
    known.insert(model.start());
    let (mut next, mut steps) = (0, Vec::new());
    while next < states.len() {
        assert!(states.len() < MOST, "too many states");
        let state = states[next].clone();
        steps.clear();
        let mut looked = model.steps(&state, &mut steps);
        let left = model.left(&state);
        if looked.is_ok() && crashed.insert(left.clone()) {
            looked = model.crash(&left, &mut steps);
        }
        if let Err(what) = looked {
            let (mut at, mut way) = (next, Vec::new());
            while at > 0 {
                let (before, (step, who)) = ways[at];
                way.push(format!("  {step} ({who})"));
                at = before;
            }
            way.reverse();
            return Err(format!("{what}, after:\n{}", way.join("\n")));
        }
        for (step, state) in steps.drain(..) {
            if known.insert(state.clone()) {
                states.push(state);
                ways.push((next, step));
            }
        }
        next += 1;
    }
    Ok(states.len())
}
