//! What comes to a cluster.

use clap::ValueEnum;
use freshet_log::medium::{DEAD, FULL};
use serde::Serialize;

use crate::throwaway::net::Way;

/// What comes to the primary, or to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// SIGKILL to the primary.
    Kill,
    /// SIGSTOP to the primary.
    Stop,
    /// The order to the primary to hand its role to another node.
    SwitchOver,
    /// The disk of the primary's log is full: nothing can be written.
    FullDisk,
    /// The disk of the primary's log fails whatever is asked of it. Then the node is killed, and
    /// has its disk back as it was.
    DeadDisk,
    /// The primary is cut from all others. As the next two, needs root, unshare, ip and tc.
    Cut,
    /// All that the primary sends to others is lost.
    CutOut,
    /// All that others send to the primary is lost.
    CutIn,
    /// The primary is cut from one other node or the witness alone, for 5 s. The figure is the
    /// longest time without a row.
    CutPeer,
    /// The primary's cable is cut and whole again by turns of 0.2 to 5 s, for --flap seconds. The
    /// figure is the longest time without a row. In that time the primary of the moment is killed
    /// once: how long nothing was acknowledged then is a figure of its own.
    Flap,
    /// All nodes end at the same time, as by a loss of power, and start again.
    Power,
}

impl Fault {
    /// Whose packets are lost, if the primary is cut from all others until the round is over.
    pub(super) fn cut(self) -> Option<Way> {
        match self {
            Self::Kill | Self::Stop | Self::SwitchOver | Self::FullDisk | Self::DeadDisk | Self::Power => None,
            Self::CutPeer | Self::Flap => None,
            Self::Cut => Some(Way::Both),
            Self::CutOut => Some(Way::Out),
            Self::CutIn => Some(Way::In),
        }
    }

    /// Whether the primary lives, and could not be told from a lost one by a person.
    pub(super) fn leaves_it_alive(self) -> bool {
        matches!(self, Self::Stop | Self::FullDisk | Self::DeadDisk) || self.needs_net()
    }

    /// What the primary's disk is told, if anything.
    pub(super) fn disk(self) -> Option<&'static str> {
        match self {
            Self::FullDisk => Some(FULL),
            Self::DeadDisk => Some(DEAD),
            _ => None,
        }
    }

    /// Whether there has to be a network to cut.
    pub(super) fn needs_net(self) -> bool {
        matches!(self, Self::CutPeer | Self::Flap) || self.cut().is_some()
    }

    /// As on the command line.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}
