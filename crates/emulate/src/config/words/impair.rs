//! Words of losses, corruption and duplication.

use super::Words;
use crate::config::{Corruption, Impairments, Loss, Pipe, files, units};

/// Where impairments go: before the queue, as in netem and dummynet, until `after` says behind the link.
#[derive(Default)]
pub(super) struct Pending {
    is_after: bool,
    /// A place's first loss in these words takes the place of what was there; the next ones add to it.
    named: [bool; 2],
}

impl Pending {
    pub fn word(&mut self, word: &str, words: &mut Words, pipe: &mut Pipe) -> Result<bool, String> {
        if word == "loss-after" {
            let was_after = std::mem::replace(&mut self.is_after, true);
            let is_read = self.word("loss", words, pipe);
            self.is_after = was_after;
            return is_read;
        }
        let place = if self.is_after { &mut pipe.after } else { &mut pipe.before };
        match word {
            "before" => self.is_after = false,
            "after" => self.is_after = true,
            "loss" | "drop" if words.take("none") => self.lose(place, None),
            "drop" if matches!(words.peek(), Some("head" | "tail")) => return Ok(false),
            "loss" | "drop" => {
                let loss = loss(words)?;
                self.lose(place, loss);
            }
            "plr" => {
                let loss = plr(words)?;
                self.lose(place, loss);
            }
            "corrupt" => place.corruption = share("corrupt", words)?.map(Corruption::OneBit),
            "ber" => place.corruption = bit_error_rate(words)?.map(Corruption::BitErrorRate),
            "duplicate" => place.duplication = share("duplicate", words)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn lose(&mut self, place: &mut Impairments, loss: Option<Loss>) {
        if !std::mem::replace(&mut self.named[usize::from(self.is_after)], true) {
            place.loss.clear();
        }
        place.loss.extend(loss);
    }
}

/// Reads "1%" or "none", as corrupt and duplicate have it.
fn share(word: &str, words: &mut Words) -> Result<Option<f64>, String> {
    if words.take("none") {
        return Ok(None);
    }
    let probability = words.percentage(word)?;
    refuse_correlation(word, words)?;
    Ok((probability > 0.0).then_some(probability))
}

fn bit_error_rate(words: &mut Words) -> Result<Option<f64>, String> {
    if words.take("none") {
        return Ok(None);
    }
    let text = words.argument("ber", "1e-9")?;
    let rate = units::fraction(&text)
        .map_err(|_| format!("ber: {text:?} is not a bit error rate from 0 to 1; write it as 1e-9"))?;
    Ok((rate > 0.0).then_some(rate))
}

/// Refuses netem's correlation where it has no exact meaning here.
pub(super) fn refuse_correlation(word: &str, words: &mut Words) -> Result<(), String> {
    match words.number() {
        None => Ok(()),
        Some(text) if units::percentage_in(&text, super::Dialect::Netem) == Ok(0.0) => Ok(()),
        Some(text) => Err(format!(
            "{word}: the correlation {text} is not offered (netem's changes the probability itself); leave it out"
        )),
    }
}

/// Reads what is behind `loss`; `None`: a loss of nothing.
fn loss(words: &mut Words) -> Result<Option<Loss>, String> {
    let kind = if words.peek().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit() || c == '.')) {
        "random".to_owned()
    } else {
        words.argument("loss", "1%")?
    };
    match kind.as_str() {
        "random" => random(words),
        "gemodel" => gemodel(words).map(Some),
        "ge" => gilbert_elliott(words).map(Some),
        "state" => state(words).map(Some),
        "burst" => burst(words).map(Some),
        "dwell" => Ok(Some(Loss::Dwell { good: words.time("loss dwell")?, bad: words.time("loss dwell")? })),
        "every" => every(words).map(Some),
        "syn" => syn(words).map(Some),
        "segment" => segment(words).map(Some),
        "pattern" => pattern(words).map(Some),
        "time-pattern" => time_pattern(words).map(Some),
        other => Err(format!(
            "loss: {other:?} is not a kind of loss; write \"loss 1%\", or one of gemodel, ge, state, burst, dwell, every, syn, segment, pattern, time-pattern"
        )),
    }
}

/// `loss P [CORR]`. With a correlation it is the chain of two states whose loss is exactly P and whose correlation from one
/// packet to the next is exactly CORR: p + r = 1 − CORR, p / (p + r) = P.
fn random(words: &mut Words) -> Result<Option<Loss>, String> {
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

/// netem's `gemodel p [r [1-h [1-k]]]` with its defaults: r is 1 − p, everything is lost in the bad state, nothing in the good one.
fn gemodel(words: &mut Words) -> Result<Loss, String> {
    let word = "loss gemodel";
    let p = words.percentage(word)?;
    let r = words.percentage_if(word)?.unwrap_or(1.0 - p);
    let h = 1.0 - words.percentage_if(word)?.unwrap_or(1.0);
    let k = 1.0 - words.percentage_if(word)?.unwrap_or(0.0);
    Ok(Loss::GilbertElliott { p, r, h, k })
}

/// The model as the literature has it: `ge p r h k`, with h and k what is delivered.
fn gilbert_elliott(words: &mut Words) -> Result<Loss, String> {
    let mut next = || words.percentage("loss ge");
    Ok(Loss::GilbertElliott { p: next()?, r: next()?, h: next()?, k: next()? })
}

/// netem's `state p13 [p31 [p32 [p23 [p14]]]]` with its defaults.
fn state(words: &mut Words) -> Result<Loss, String> {
    let word = "loss state";
    let p13 = words.percentage(word)?;
    let p31 = words.percentage_if(word)?.unwrap_or(1.0 - p13);
    let p32 = words.percentage_if(word)?.unwrap_or(0.0);
    let p23 = words.percentage_if(word)?.unwrap_or(1.0);
    let p14 = words.percentage_if(word)?.unwrap_or(0.0);
    Ok(Loss::FourState { p13, p31, p23, p32, p14 })
}

/// `loss burst P MEAN`: a loss of P in bursts of MEAN packets: r = 1 / MEAN, p = P r / (1 − P).
fn burst(words: &mut Words) -> Result<Loss, String> {
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

fn every(words: &mut Words) -> Result<Loss, String> {
    let every = words.whole("loss every", "100")?;
    let first = if words.take("first") { words.whole("first", "1")? } else { every };
    Ok(Loss::Every { every, first })
}

fn syn(words: &mut Words) -> Result<Loss, String> {
    let count = words.number().map_or(Ok(1), |text| units::whole(&text)).map_err(|why| format!("loss syn: {why}"))?;
    Ok(Loss::Syn { count })
}

fn segment(words: &mut Words) -> Result<Loss, String> {
    let index = words.whole("loss segment", "10")?;
    let retransmissions = if words.take("retransmissions") { words.whole("retransmissions", "2")? } else { 0 };
    Ok(Loss::Segment { index, retransmissions })
}

fn pattern(words: &mut Words) -> Result<Loss, String> {
    let file = words.argument("loss pattern", "losses.txt")?;
    Ok(Loss::Pattern { lost: files::pattern::read(&words.path(&file))?, file })
}

fn time_pattern(words: &mut Words) -> Result<Loss, String> {
    let file = words.argument("loss time-pattern", "losses.txt")?;
    Ok(Loss::TimePattern { lost: files::pattern::read(&words.path(&file))?, file })
}

/// dummynet's `plr P` and `plr K,p,H,r`, where K and H are what is lost in the good and the bad state.
fn plr(words: &mut Words) -> Result<Option<Loss>, String> {
    let text = words.argument("plr", "0.01")?;
    let values: Result<Vec<f64>, String> =
        text.split(',').map(|part| units::fraction(part).map_err(|why| format!("plr: {why}"))).collect();
    match values?[..] {
        [0.0] => Ok(None),
        [probability] => Ok(Some(Loss::Independent { probability })),
        [k, p, h, r] => Ok(Some(Loss::GilbertElliott { p, r, h: 1.0 - h, k: 1.0 - k })),
        _ => Err(format!("plr: {text} is neither one probability nor four (K,p,H,r)")),
    }
}
