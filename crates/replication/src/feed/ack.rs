//! Ack: one thread per standby hears what is persistent there, from the status words that the
//! standby writes here.

use freshet_base::sync::Arc;
use freshet_cluster::flow::FlowError;
use freshet_fabric::{
    channel::{Arrival, Receiver},
    tcp::ReceiveError,
};

use super::{FeedConfig, Feeder, Shipper, join};
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
    let mut below = None;
    let error = loop {
        if let Err(error) = receive_acks(&**feeder, shipper, &mut receiver, &mut below) {
            break error;
        }
        stint.note();
    };
    if let AckError::Goodbye(Refusal::Fenced { highest, .. }) = &error {
        feeder.fenced(*highest);
    }
    join::lost(&**feeder, shipper, error.to_string());
}

/// `below`: kept while a node below the standby wants another form of the log.
fn receive_acks<F: Feeder>(
    feeder: &F,
    shipper: &Shipper,
    receiver: &mut Receiver,
    below: &mut Option<Box<dyn Send>>,
) -> Result<(), AckError> {
    let FeedConfig { patience, forms, .. } = &feeder.feeds().config;
    let patience = *patience;
    let arrival = receiver.next(patience)?;
    freshet_base::step!(Ack);
    match arrival {
        None => Err(ReceiveError::Silent { peer: receiver.peer(), patience }.into()),
        Some(Arrival::Status) => {
            let (ack, asks, load) = wire::ack_of_words(receiver.status());
            shipper.ask_for(asks.own);
            shipper.note_load(load);
            shipper.note_proof(asks.in_doubt, asks.equal_at);
            shipper.round_trips.held(ack.persisted, || feeder.feeds().clock.now());
            if asks.below != below.is_some() {
                *below = below.is_none().then(|| forms.as_ref().map(|forms| forms.ask())).flatten();
            }
            let acked = feeder.feeds().state().host.acked(shipper.id, &ack)?;
            acked.event.into_iter().for_each(|event| feeder.apply(event));
            feeder.feeds().changes.wake_all();
            // What a mirror says may be what its ship thread waits for.
            if acked.wake || shipper.mirror.is_some() {
                shipper.bell.ring();
            }
            Ok(())
        }
        Some(Arrival::Frame(header)) => {
            let unexpected = Err(AckError::Unexpected { kind: header.kind });
            match (Kind::from_code(header.kind), &shipper.mirror) {
                (Some(Kind::Goodbye), _) => {
                    return Err(AckError::Goodbye(wire::decode("goodbye", receiver.message())?));
                }
                (Some(Kind::Grown), Some(inbox)) => {
                    let (region, growing) = wire::decode("region", receiver.message())?;
                    inbox.grown(region, growing);
                }
                (Some(Kind::Layout), Some(inbox)) => {
                    let is_last = wire::decode("layout", receiver.message())?;
                    if !inbox.described(receiver.inline(), is_last) {
                        return unexpected;
                    }
                }
                _ => return unexpected,
            }
            shipper.bell.ring();
            Ok(())
        }
    }
}
