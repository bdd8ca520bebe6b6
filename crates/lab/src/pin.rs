//! Which processors a benchmark's nodes may run on.

use std::{fmt, str::FromStr};

use freshet::pin::Cpus;

/// Processors of the primary and, behind a slash, of its standbys: `0/1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) primary: Cpus,
    pub(crate) standbys: Option<Cpus>,
}

impl FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((primary, standbys)) => Ok(Self { primary: primary.parse()?, standbys: Some(standbys.parse()?) }),
            None => Ok(Self { primary: text.parse()?, standbys: None }),
        }
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.primary)?;
        match &self.standbys {
            Some(cpus) => write!(f, "/{cpus}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_of_both_sides() {
        assert_eq!("0/1".parse::<Pin>().unwrap().to_string(), "0/1");
        assert_eq!("1".parse::<Pin>().unwrap().standbys, None);
        assert!("0/".parse::<Pin>().unwrap_err().contains("not a list of processors"));
    }
}
