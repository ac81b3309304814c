//! Findings about an estimate, as far as exchanges show them.

use crate::fit::Fit;
use crate::piece::near_the_floor;
use crate::{Finding, Found, Step};

/// Significance limit of a difference between directions, in standard deviations over all segments.
const BEYOND_CHANCE: f64 = 5.0;

/// Relevance limit: the possible effect on the offset, as a share of its 95 % error.
const MATTERS: f64 = 0.5;

/// Returns the findings, and the observed effect on the offset of load in one direction.
pub(crate) fn findings(
    pieces: &[Vec<Fit>],
    steps: &[Step],
    contradictory: u64,
    is_within_limits: bool,
    unsteady_ns: f64,
) -> (Vec<Found>, f64) {
    let fits: Vec<&Fit> = pieces.iter().flatten().collect();
    let mut found = Vec::new();
    let mut say = |finding, sentence| found.push(Found { finding, sentence });
    if !steps.is_empty() {
        say(Finding::ClockStepped, stepped(steps));
    }
    if !is_within_limits {
        let sentence = "the clocks' rate changed faster than the limits allow: one is being slewed, or was set";
        say(Finding::ClockSlewed, sentence.to_owned());
    }
    if contradictory > 0 {
        let sentence = format!("{contradictory} exchanges contradict themselves: a clock was set within them");
        say(Finding::ClockStepped, sentence);
    }
    let asymmetry = asymmetry_of(&fits);
    if let Some(sentence) =
        asymmetry.as_ref().map(|(_, sentence)| sentence.clone()).or_else(|| moved(pieces, unsteady_ns))
    {
        say(Finding::ClockAsymmetric, sentence);
    }
    if fits.iter().any(|fit| fit.errors.is_none()) {
        let sentence = "some stretches have too few exchanges for a 95 % error: there it is the maximum error";
        say(Finding::ClockUnsynchronised, sentence.to_owned());
    }
    (found, asymmetry.map_or(0.0, |(asymmetry, _)| asymmetry))
}

fn stepped(steps: &[Step]) -> String {
    let largest = steps.iter().map(|step| step.by_ns.abs()).fold(0.0, f64::max);
    let times = if steps.len() == 1 { "once".to_owned() } else { format!("{} times", steps.len()) };
    format!("a clock was set {times}, by up to {:.3} us", largest / 1e3)
}

/// Detects load in one direction: its delays are close to their minimum less often than the other direction's. It is
/// reported if the possible effect on the offset is a large part of its error.
fn asymmetry_of(fits: &[&Fit]) -> Option<(f64, String)> {
    let known: Vec<(&Fit, f64)> = fits.iter().filter_map(|fit| Some((*fit, fit.errors?.0))).collect();
    let count = known.len() as f64;
    let near = |fit: &Fit| near_the_floor(fit.range.1 - fit.range.0) as f64;
    let ratio = |fit: &Fit| (fit.excess.0.max(1.0) / fit.excess.1.max(1.0)).ln() * (near(fit) / 2.0).sqrt();
    let score = known.iter().map(|(fit, _)| ratio(fit)).sum::<f64>() / count.sqrt();
    let effect = |(fit, error): &(&Fit, f64)| (fit.excess.0 - fit.excess.1) / near(fit).sqrt() / 2.0 / error.max(1.0);
    let effect = known.iter().map(effect).sum::<f64>() / count;
    let asymmetry = known.iter().map(|(fit, _)| fit.asymmetry).sum::<f64>().abs() / count;
    (score.abs() > BEYOND_CHANCE && effect.abs() > MATTERS).then(|| {
        let (more, less) = if effect > 0.0 { ("to", "from") } else { ("from", "to") };
        let sentence = format!(
            "delays {more} the peer reach their least value less often than those {less} it: that direction is loaded, which \
             may move the offset by {:.3} us or more",
            asymmetry / 1e3
        );
        (asymmetry, sentence)
    })
}

/// Returns the effect of a longer path: the excess of a segment's minimum round trip over the least of all segments,
/// beyond the errors of both. Half of the excess may be in one direction alone, and shifts the offset by as much.
pub(crate) fn longer_ns(fit: &Fit, fits: &[Fit]) -> f64 {
    let known = fits.iter().filter_map(|fit| Some((fit.width, fit.errors?.0)));
    let least = known.min_by(|a, b| a.0.total_cmp(&b.0));
    let (Some((width, least_error)), Some((error, _))) = (least, fit.errors) else { return 0.0 };
    let longer = (fit.width - width) / 2.0;
    if longer > error.hypot(least_error) { longer } else { 0.0 }
}

/// Detects that the minimum round trip and the apparent offset changed together: the minimum delay of one direction changed.
fn moved(pieces: &[Vec<Fit>], unsteady_ns: f64) -> Option<String> {
    let changed = pieces.iter().flat_map(|fits| fits.windows(2)).find_map(|pair| {
        let [before, after] = pair else { return None };
        let error = before.standard?.hypot(after.standard?);
        let slope = f64::midpoint(before.slope, after.slope);
        let offset = after.offset - before.offset - slope * (after.centre - before.centre);
        let width = after.width - before.width;
        let is_one_direction = (width.abs() / 2.0 - offset.abs()).abs() < offset.abs() / 2.0;
        (is_one_direction && offset.abs() > 8.0 * error + 10.0 + unsteady_ns).then_some(width)
    })?;
    let way = if changed > 0.0 { "rose" } else { "fell" };
    Some(format!(
        "the least delay of one direction {way} by about {:.3} us: the path changed, and which of its lengths was the \
         symmetric one cannot be seen",
        changed.abs() / 1e3
    ))
}
