//! All loss models behind one type.

use sojourn_time::Time;

use crate::config::Loss;
use crate::random::{Chance, Random};
use crate::select::Key;

use super::markov::{Dwell, FourState, Gilbert};
use super::pattern::{Every, Pattern, TimePattern};
use super::targeted::{FirstSyns, OneSegment};

/// A loss model with its state.
#[derive(Debug)]
pub(super) enum Model {
    Independent(Chance),
    Gilbert(Gilbert),
    Dwell(Dwell),
    FourState(FourState),
    Every(Every),
    Pattern(Pattern),
    TimePattern(TimePattern),
    Syn(FirstSyns),
    Segment(OneSegment),
}

impl Model {
    /// Makes a model; a Markov chain starts in its stationary distribution.
    pub(super) fn new(loss: &Loss, random: &mut Random) -> Self {
        match loss {
            Loss::Independent { probability } => Self::Independent(Chance::of(*probability)),
            Loss::GilbertElliott { p, r, h, k } => Self::Gilbert(Gilbert::new([*p, *r, *h, *k], random)),
            Loss::Dwell { good, bad } => Self::Dwell(Dwell::new(*good, *bad, random)),
            Loss::FourState { p13, p31, p23, p32, p14 } => {
                Self::FourState(FourState::new([*p13, *p31, *p23, *p32, *p14], random))
            }
            Loss::Every { every, first } => Self::Every(Every::new(*every, *first)),
            Loss::Pattern { .. } => Self::Pattern(Pattern::default()),
            Loss::TimePattern { .. } => Self::TimePattern(TimePattern::default()),
            Loss::Syn { count } => Self::Syn(FirstSyns::new(*count)),
            Loss::Segment { index, retransmissions } => Self::Segment(OneSegment::new(*index, *retransmissions)),
        }
    }

    /// Changes the parameters: a chain of the same kind continues from its state, any other model starts again.
    pub(super) fn change(&mut self, loss: &Loss, random: &mut Random) {
        match (&mut *self, loss) {
            (Self::Gilbert(chain), Loss::GilbertElliott { p, r, h, k }) => chain.set([*p, *r, *h, *k]),
            (Self::Dwell(chain), Loss::Dwell { good, bad }) => chain.set(*good, *bad),
            (Self::FourState(chain), Loss::FourState { p13, p31, p23, p32, p14 }) => {
                chain.set([*p13, *p31, *p23, *p32, *p14]);
            }
            _ => *self = Self::new(loss, random),
        }
    }

    /// Passes the next packet to the model; returns whether it is lost. `loss`: the model's configuration, which holds long patterns.
    pub(super) fn meets(&mut self, loss: &Loss, key: &Key, at: Time, random: &mut Random) -> bool {
        match self {
            Self::Independent(chance) => chance.happens(random),
            Self::Gilbert(chain) => chain.meets(random),
            Self::Dwell(chain) => chain.meets(at, random),
            Self::FourState(chain) => chain.meets(random),
            Self::Every(count) => count.meets(),
            Self::Pattern(pattern) => matches!(loss, Loss::Pattern { lost, .. } if pattern.meets(lost)),
            Self::TimePattern(pattern) => matches!(loss, Loss::TimePattern { lost, .. } if pattern.meets(lost, at)),
            Self::Syn(flows) => flows.meets(key),
            Self::Segment(flows) => flows.meets(key),
        }
    }
}
