//! Which processors a process may run on.

use std::{fmt, str::FromStr};

use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::Failure;

/// A list of processors: `0`, `0,2` or `1-3`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cpus(Vec<usize>);

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a list of processors: write them like 0, 0,2 or 1-3");
        let number = |text: &str| text.parse::<usize>().ok().filter(|cpu| *cpu < CpuSet::MAX_CPU).ok_or_else(wrong);
        let mut cpus = Vec::new();
        for part in text.split(',') {
            match part.split_once('-') {
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if first > last {
                        return Err(wrong());
                    }
                    cpus.extend(first..=last);
                }
                None => cpus.push(number(part)?),
            }
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, cpu) in self.0.iter().enumerate() {
            write!(f, "{}{cpu}", if position == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl TryFrom<String> for Cpus {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Cpus> for String {
    fn from(cpus: Cpus) -> Self {
        cpus.to_string()
    }
}

impl Cpus {
    /// Keeps the calling thread, and all that it starts from now on, on these processors.
    ///
    /// # Errors
    /// When there is no such processor.
    pub fn pin(&self) -> Result<(), Failure> {
        let mut set = CpuSet::new();
        for cpu in &self.0 {
            set.set(*cpu);
        }
        sched_setaffinity(None, &set)
            .map_err(|cause| Failure::new(format!("cannot run on processors {self}: {cause}; see `nproc`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        assert_eq!("0,2-4".parse::<Cpus>().unwrap(), Cpus(vec![0, 2, 3, 4]));
        for text in ["", "x", "1-0", "1,", "-1", "99999"] {
            assert!(text.parse::<Cpus>().unwrap_err().contains("not a list of processors"), "{text}");
        }
    }
}
