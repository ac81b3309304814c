//! What happens to single packets: loss, corruption, duplication.
//!
//! Every model sees every packet and goes on in a stream of its own, also where another one has already lost the packet or a
//! trace says how likely a loss is now. So what one impairment does is the same with and without the others.

mod corrupt;
mod loss;
mod markov;
mod pattern;
mod targeted;

use std::sync::Arc;

use sojourn_time::Time;

use crate::config::Impairments;
use crate::random::{Chance, Origin, Owner, Random};
use crate::select::Key;
use crate::shared::Pool;

use corrupt::Corruptor;
use loss::Model;

/// One place of impairments in one pipe.
#[derive(Debug)]
pub struct Stage {
    impairments: Arc<Impairments>,
    owner: Owner,
    place: String,
    losses: Vec<Model>,
    /// One for each place in the list of losses; never fewer than there were, so that a loss that comes back does not repeat its draws.
    streams: Vec<Random>,
    trace: Random,
    corruptor: Corruptor,
    duplicates: Chance,
    duplication: Random,
}

/// What a stage did to a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// It is lost.
    pub is_lost: bool,
    /// A copy of it is to follow.
    pub is_duplicated: bool,
}

impl Stage {
    /// Makes a stage; `place` ("before", "after") keeps the randomness of two stages apart.
    pub fn new(impairments: &Impairments, origin: Origin<'_>, place: &str) -> Self {
        let mut stage = Self {
            impairments: share(&Impairments::default()),
            owner: Owner::new(origin),
            place: place.to_owned(),
            losses: Vec::new(),
            streams: Vec::new(),
            trace: origin.stream(&format!("{place}/trace")),
            corruptor: Corruptor::new(origin.stream(&format!("{place}/corruption"))),
            duplicates: Chance::NEVER,
            duplication: origin.stream(&format!("{place}/duplication")),
        };
        stage.set(impairments);
        stage
    }

    /// Takes other parameters; what did not change keeps its state, and all keep their randomness. Losses are identified by
    /// their place in the list: one of the same kind with other probabilities goes on from the state that it is in, a pattern
    /// or a count that changed starts again.
    pub fn set(&mut self, impairments: &Impairments) {
        while self.streams.len() < impairments.loss.len() {
            let purpose = format!("{}/loss/{}", self.place, self.streams.len());
            self.streams.push(self.owner.stream(&purpose));
        }
        self.losses.truncate(impairments.loss.len());
        for (place, (loss, stream)) in impairments.loss.iter().zip(&mut self.streams).enumerate() {
            match self.losses.get_mut(place) {
                Some(_) if self.impairments.loss.get(place) == Some(loss) => {}
                Some(model) => model.change(loss, stream),
                None => self.losses.push(Model::new(loss, stream)),
            }
        }
        self.corruptor.set(impairments.corruption);
        self.duplicates = impairments.duplication.map_or(Chance::NEVER, Chance::of);
        self.impairments = share(impairments);
    }

    /// Says what becomes of the next packet. `loss`: a probability that holds now instead of the stage's own losses (a trace's).
    pub fn meet(&mut self, key: &Key, at: Time, loss: Option<f64>) -> Met {
        let mut is_lost = false;
        let losses = self.losses.iter_mut().zip(&self.impairments.loss);
        for ((model, loss), stream) in losses.zip(&mut self.streams) {
            is_lost |= model.meets(loss, key, at, stream);
        }
        if let Some(probability) = loss {
            is_lost = Chance::of(probability).happens(&mut self.trace);
        }
        self.corruptor.turn();
        let is_chosen = self.impairments.duplication.is_some() && self.duplicates.happens(&mut self.duplication);
        Met { is_lost, is_duplicated: is_chosen && !is_lost }
    }

    /// Damages a frame that was not lost, and returns how many bits it flipped. To be called once for each packet that `meet` let live.
    pub fn damage(&mut self, frame: &mut [u8]) -> u32 {
        self.corruptor.damage(frame)
    }

    /// Whether `damage` can do anything: else frames need not be touched.
    pub fn is_damaging(&self) -> bool {
        self.impairments.corruption.is_some()
    }
}

static IMPAIRMENTS: Pool<Impairments> = Pool::new();

/// Patterns may be long, and each flow has stages of its own.
fn share(impairments: &Impairments) -> Arc<Impairments> {
    IMPAIRMENTS.share(|have| have == impairments, || impairments.clone())
}
