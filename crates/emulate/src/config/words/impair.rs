//! Words of losses, corruption and duplication.

use super::{Dialect, Draft, Read, Words};
use crate::config::{Corruption, Impairments, Loss, files, units};

pub(super) fn before(draft: &mut Draft, _: &str, _: &mut Words) -> Read<()> {
    draft.impair.is_after = false;
    Ok(())
}

pub(super) fn after(draft: &mut Draft, _: &str, _: &mut Words) -> Read<()> {
    draft.impair.is_after = true;
    Ok(())
}

pub(super) fn loss(draft: &mut Draft, _: &str, words: &mut Words) -> Read<()> {
    let loss = words.or_none(kind)?.flatten();
    draft.lose(loss);
    Ok(())
}

/// Parses `after loss …`, for this loss only.
pub(super) fn loss_after(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    let was_after = std::mem::replace(&mut draft.impair.is_after, true);
    let read = loss(draft, word, words);
    draft.impair.is_after = was_after;
    read
}

/// Parses dummynet's `plr P` and `plr K,p,H,r`, where K and H are the loss probabilities in the good and the bad state.
pub(super) fn plr(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    let loss = words.value(word, "0.01", |text| {
        let values: Result<Vec<f64>, String> = text.split(',').map(units::fraction).collect();
        match values?[..] {
            [0.0] => Ok(None),
            [probability] => Ok(Some(Loss::Independent { probability })),
            [k, p, h, r] => Ok(Some(Loss::GilbertElliott { p, r, h: 1.0 - h, k: 1.0 - k })),
            _ => Err(format!("{text} is neither one probability nor four (K,p,H,r)")),
        }
    })?;
    draft.lose(loss);
    Ok(())
}

pub(super) fn corrupt(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    draft.impaired().corruption = share(word, words)?.map(Corruption::OneBit);
    Ok(())
}

pub(super) fn ber(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    let rate = words.or_none(|words| {
        words.value(word, "1e-9", |text| {
            units::fraction(text).map_err(|_| format!("{text:?} is not a bit error rate from 0 to 1; write it as 1e-9"))
        })
    })?;
    draft.impaired().corruption = rate.filter(|rate| *rate > 0.0).map(Corruption::BitErrorRate);
    Ok(())
}

pub(super) fn duplicate(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    draft.impaired().duplication = share(word, words)?;
    Ok(())
}

/// Where impairments apply: before the queue, as in netem and dummynet; after the word `after`, behind the link.
#[derive(Default)]
pub(super) struct Pending {
    is_after: bool,
    /// By place: whether a loss was named. The first loss replaces the configured ones; later ones are added.
    named: [bool; 2],
}

impl Draft {
    fn impaired(&mut self) -> &mut Impairments {
        if self.impair.is_after { &mut self.pipe.after } else { &mut self.pipe.before }
    }

    fn lose(&mut self, loss: Option<Loss>) {
        if !std::mem::replace(&mut self.impair.named[usize::from(self.impair.is_after)], true) {
            self.impaired().loss.clear();
        }
        self.impaired().loss.extend(loss);
    }
}

/// Parses "1%" or "none", for corrupt and duplicate.
fn share(word: &str, words: &mut Words) -> Read<Option<f64>> {
    let share = words.or_none(|words| {
        let share = words.percentage(word)?;
        refuse_correlation(word, words).map(|()| share)
    })?;
    Ok(share.filter(|share| *share > 0.0))
}

/// Refuses netem's correlation of a word for which it has no exact meaning.
pub(super) fn refuse_correlation(word: &str, words: &mut Words) -> Read<()> {
    no_correlation(words, |text| {
        format!("{word}: the correlation {text} is not offered (netem's changes the probability itself); leave it out")
    })
}

/// Takes a correlation of 0; refuses any other.
pub(super) fn no_correlation(words: &mut Words, refusal: impl Fn(&str) -> String) -> Read<()> {
    match words.number() {
        Some(text) if units::percentage_in(&text, Dialect::Netem) != Ok(0.0) => Err(refusal(&text)),
        _ => Ok(()),
    }
}

/// Parses the arguments of `loss`; `None`: a loss probability of 0.
fn kind(words: &mut Words) -> Read<Option<Loss>> {
    if words.is_number() {
        return random(words);
    }
    match words.argument("loss", "1%")?.as_str() {
        "random" => random(words),
        "gemodel" => gemodel(words).map(Some),
        "ge" => gilbert_elliott(words).map(Some),
        "state" => state(words).map(Some),
        "burst" => burst(words).map(Some),
        "dwell" => Ok(Some(Loss::Dwell { good: words.time("loss dwell")?, bad: words.time("loss dwell")? })),
        "every" => every(words).map(Some),
        "syn" => syn(words).map(Some),
        "segment" => segment(words).map(Some),
        "pattern" => pattern("loss pattern", words).map(|(lost, file)| Some(Loss::Pattern { lost, file })),
        "time-pattern" => {
            pattern("loss time-pattern", words).map(|(lost, file)| Some(Loss::TimePattern { lost, file }))
        }
        other => Err(format!(
            "loss: {other:?} is not a kind of loss; write \"loss 1%\", or one of gemodel, ge, state, burst, dwell, every, syn, segment, pattern, time-pattern"
        )),
    }
}

/// Parses `loss P [CORR]`. With a correlation, the result is the two-state chain with loss probability P and
/// packet-to-packet correlation CORR, both exact: p + r = 1 − CORR, p / (p + r) = P.
fn random(words: &mut Words) -> Read<Option<Loss>> {
    let probability = words.percentage("loss")?;
    let correlation = words.percentage_if("loss")?.unwrap_or(0.0);
    if probability == 0.0 {
        return Ok(None);
    }
    if correlation == 0.0 {
        return Ok(Some(Loss::Independent { probability }));
    }
    if correlation >= 1.0 {
        return Err("loss: with a correlation of 100% the first packet decides for ever; give less".to_owned());
    }
    let leave = 1.0 - correlation;
    Ok(Some(Loss::GilbertElliott { p: probability * leave, r: (1.0 - probability) * leave, h: 0.0, k: 1.0 }))
}

/// Parses netem's `gemodel p [r [1-h [1-k]]]` with its defaults: r is 1 − p; the bad state loses every packet, the good one none.
fn gemodel(words: &mut Words) -> Read<Loss> {
    let word = "loss gemodel";
    let p = words.percentage(word)?;
    let r = words.percentage_if(word)?.unwrap_or(1.0 - p);
    let h = 1.0 - words.percentage_if(word)?.unwrap_or(1.0);
    let k = 1.0 - words.percentage_if(word)?.unwrap_or(0.0);
    Ok(Loss::GilbertElliott { p, r, h, k })
}

/// Parses the model as in the literature: `ge p r h k`, where h and k are delivery probabilities.
fn gilbert_elliott(words: &mut Words) -> Read<Loss> {
    let mut next = || words.percentage("loss ge");
    Ok(Loss::GilbertElliott { p: next()?, r: next()?, h: next()?, k: next()? })
}

/// Parses netem's `state p13 [p31 [p32 [p23 [p14]]]]` with its defaults.
fn state(words: &mut Words) -> Read<Loss> {
    let word = "loss state";
    let p13 = words.percentage(word)?;
    let p31 = words.percentage_if(word)?.unwrap_or(1.0 - p13);
    let p32 = words.percentage_if(word)?.unwrap_or(0.0);
    let p23 = words.percentage_if(word)?.unwrap_or(1.0);
    let p14 = words.percentage_if(word)?.unwrap_or(0.0);
    Ok(Loss::FourState { p13, p31, p23, p32, p14 })
}

/// Parses `loss burst P MEAN`: loss probability P in bursts of MEAN packets: r = 1 / MEAN, p = P r / (1 − P).
fn burst(words: &mut Words) -> Read<Loss> {
    let probability = words.percentage("loss burst")?;
    let mean = words.real("loss burst", "1% 5")?;
    if mean < 1.0 || probability >= 1.0 {
        return Err("loss burst: write the loss (below 100%) and the mean burst in packets (1 or more), as in \"loss burst 1% 5\"".to_owned());
    }
    let r = 1.0 / mean;
    let p = probability * r / (1.0 - probability);
    if p > 1.0 {
        return Err(format!(
            "loss burst: bursts of {mean} packets cannot make a loss of {}; make them longer",
            units::percentage_text(probability)
        ));
    }
    Ok(Loss::GilbertElliott { p, r, h: 0.0, k: 1.0 })
}

fn every(words: &mut Words) -> Read<Loss> {
    let every = words.whole("loss every", "100")?;
    let first = words.behind("first", |words, name| words.whole(name, "1"))?;
    Ok(Loss::Every { every, first: first.unwrap_or(every) })
}

fn syn(words: &mut Words) -> Read<Loss> {
    Ok(Loss::Syn { count: words.value_if("loss syn", units::whole)?.unwrap_or(1) })
}

fn segment(words: &mut Words) -> Read<Loss> {
    let index = words.whole("loss segment", "10")?;
    let retransmissions = words.behind("retransmissions", |words, name| words.whole(name, "2"))?;
    Ok(Loss::Segment { index, retransmissions: retransmissions.unwrap_or(0) })
}

/// Parses a file name, and reads the file.
fn pattern(word: &str, words: &mut Words) -> Read<(Vec<bool>, String)> {
    let (file, path) = words.file(word, "losses.txt")?;
    Ok((files::pattern::read(&path)?, file))
}
