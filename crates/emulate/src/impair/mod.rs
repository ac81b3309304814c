//! Impairments of single packets: loss, corruption, duplication.
//!
//! Every model evaluates every packet and draws from its own stream, even if another model has already lost the packet
//! or a trace sets the loss probability. The effect of one impairment is therefore the same with and without the
//! others.

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

/// The impairments at one place of one pipe.
#[derive(Debug)]
pub struct Stage {
    impairments: Arc<Impairments>,
    owner: Owner,
    place: String,
    losses: Vec<Model>,
    /// One per position in the list of losses; never shortened, so that a loss that is configured again does not repeat its draws.
    streams: Vec<Random>,
    trace: Random,
    corruptor: Corruptor,
    duplicates: Chance,
    duplication: Random,
}

/// What a stage decided on a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// The packet is lost.
    pub is_lost: bool,
    /// The packet is followed by a copy.
    pub is_duplicated: bool,
}

impl Stage {
    /// Creates a stage; `place` ("before", "after") separates the random streams of two stages.
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

    /// Changes the parameters. Unchanged models keep their state, and all keep their random streams. A loss model is
    /// identified by its position in the list: a chain of the same kind with other probabilities continues from its
    /// state; any other model that changed starts again.
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

    /// Decides on the next packet. `loss`: a probability that now replaces the stage's own losses (from a trace).
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

    /// Damages a frame and returns how many bits were flipped. Call it once for each packet that `meet` did not lose.
    pub fn damage(&mut self, frame: &mut [u8]) -> u32 {
        self.corruptor.damage(frame)
    }

    /// Returns whether `damage` can do anything; otherwise frames need not be touched.
    pub fn is_damaging(&self) -> bool {
        self.impairments.corruption.is_some()
    }
}

static IMPAIRMENTS: Pool<Impairments> = Pool::new();

/// Shares equal impairments: patterns may be long, and each flow has its own stages.
fn share(impairments: &Impairments) -> Arc<Impairments> {
    IMPAIRMENTS.share(|have| have == impairments, || impairments.clone())
}
