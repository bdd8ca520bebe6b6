//! Ack: one thread per standby hears what is persistent there, from the status words that the
//! standby writes here.

use freshet_base::sync::Arc;
use freshet_cluster::flow::FlowError;
use freshet_fabric::{
    channel::{Arrival, Receiver},
    tcp::ReceiveError,
};

use super::{Feeder, Shipper};
use crate::wire::{self, DecodeError, Kind, Refusal};

/// Why hearing ended.
#[derive(Debug, thiserror::Error)]
enum AckError {
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Flow(#[from] FlowError),
    #[error("a standby sent a frame of kind {kind}, which only a primary does")]
    Unexpected { kind: u8 },
    #[error("the standby said goodbye: {0}")]
    Goodbye(Refusal),
}

/// The ack thread.
pub(super) fn run<F: Feeder>(feeder: &Arc<F>, shipper: &Arc<Shipper>, mut receiver: Receiver) {
    let mut stint = feeder.feeds().ack_cpu.begin();
    let error = loop {
        if let Err(error) = hear(&**feeder, shipper, &mut receiver) {
            break error;
        }
        stint.note();
    };
    if let AckError::Goodbye(Refusal::Fenced { highest, .. }) = &error {
        feeder.fenced(*highest);
    }
    feeder.lost(shipper, error.to_string());
}

fn hear<F: Feeder>(feeder: &F, shipper: &Shipper, receiver: &mut Receiver) -> Result<(), AckError> {
    let patience = feeder.feeds().config.patience;
    match receiver.next(patience)? {
        None => Err(ReceiveError::Silent { peer: receiver.peer(), patience }.into()),
        Some(Arrival::Status) => {
            let ack = wire::ack_of_words(receiver.status());
            let acked = feeder.feeds().state().host.acked(shipper.id, &ack)?;
            acked.event.into_iter().for_each(|event| feeder.tell(event));
            if acked.wake {
                shipper.bell.ring();
            }
            Ok(())
        }
        Some(Arrival::Frame(header)) => match Kind::from_code(header.kind) {
            Some(Kind::Goodbye) => Err(AckError::Goodbye(wire::decode("goodbye", receiver.message())?)),
            _ => Err(AckError::Unexpected { kind: header.kind }),
        },
    }
}
