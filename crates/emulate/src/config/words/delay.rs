//! Words of the delay line.

use sojourn_time::Nanos;

use super::{Draft, Read, Words, impair};
use crate::config::{Distribution, Order, Pipe, PortDelay, Reorder, files, selection};

/// Parses netem's `delay T [J [CORR]]`, which includes dummynet's `delay T`.
pub(super) fn delay(draft: &mut Draft, _: &str, words: &mut Words) -> Read<()> {
    let constant = words.or_none(|words| words.time("delay"))?;
    draft.pipe.delay.constant = constant.unwrap_or(Nanos::ZERO);
    if constant.is_none() {
        return Ok(());
    }
    if let Some(share) = words.peek().filter(|word| word.ends_with('%')) {
        return Err(format!("delay: {share} is a percentage; jitter is a time, as in \"delay 20ms 2ms\""));
    }
    let Some(jitter) = words.time_if("delay")? else { return Ok(()) };
    draft.delay.size(jitter, &mut draft.pipe);
    impair::no_correlation(words, |correlation| {
        format!(
            "delay: {correlation} would be a correlation from packet to packet, which depends on how fast packets come (and does nothing in netem); write \"half-life 10ms\", the time after which half of a deviation is left"
        )
    })
}

pub(super) fn jitter(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    let size = words.or_none(|words| words.time(word))?;
    draft.delay.size(size.unwrap_or(Nanos::ZERO), &mut draft.pipe);
    Ok(())
}

pub(super) fn distribution(draft: &mut Draft, _: &str, words: &mut Words) -> Read<()> {
    draft.delay.shape = Some(shape(words)?);
    Ok(())
}

pub(super) fn ecdf(draft: &mut Draft, _: &str, words: &mut Words) -> Read<()> {
    draft.delay.shape = Some(empirical(words)?);
    Ok(())
}

pub(super) fn half_life(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    draft.pipe.delay.half_life = words.or_none(|words| words.time(word))?;
    Ok(())
}

pub(super) fn order(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    draft.pipe.delay.order = words.value(word, "kept", |text| match text {
        "kept" => Ok(Order::Kept),
        "free" => Ok(Order::Free),
        other => Err(format!("{other:?} is neither kept nor free")),
    })?;
    Ok(())
}

/// Parses netem's `reorder P [CORR] [gap N]`, and `by T`: the reduction of a selected packet's delay.
pub(super) fn reorder(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    let read = words.or_none(|words| {
        let mut reorder = Reorder { probability: words.percentage(word)?, gap: 0, by: None };
        impair::refuse_correlation(word, words)?;
        words.each(|words, name| {
            match name {
                "gap" => reorder.gap = words.whole(name, "5")?,
                "by" => reorder.by = Some(words.time(name)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(reorder)
    })?;
    draft.pipe.delay.reorder = read.filter(|reorder| reorder.probability > 0.0);
    Ok(())
}

/// Parses `port-delay PORTS T`. Several in one text are added up.
pub(super) fn port_delay(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    let read = words.or_none(|words| {
        let ports = words.value(word, "5001-5010 40ms", selection::ports)?;
        let constant = words.time(word)?;
        Ok(ports.into_iter().map(move |(first, last)| PortDelay { first, last, constant }))
    })?;
    if !std::mem::replace(&mut draft.delay.is_port_named, true) || read.is_none() {
        draft.pipe.delay.of_ports.clear();
    }
    draft.pipe.delay.of_ports.extend(read.into_iter().flatten());
    Ok(())
}

/// The size and the shape of the jitter, which may come in any order.
#[derive(Default)]
pub(super) struct Pending {
    /// Whether these words named a port delay. The first one replaces the configured ones; later ones are added.
    is_port_named: bool,
    size: Option<Nanos>,
    shape: Option<Shape>,
}

/// A distribution without its size.
enum Shape {
    Uniform,
    Normal,
    Exponential,
    /// Shape, and a scale if given; otherwise the jitter is the mean.
    Lomax(f64, Option<Nanos>),
    Gamma(f64, Option<Nanos>),
    Table(Vec<i16>, String),
    Empirical(Distribution),
}

impl Pending {
    fn size(&mut self, size: Nanos, pipe: &mut Pipe) {
        self.size = Some(size);
        if size == Nanos::ZERO {
            pipe.delay.half_life = None;
        }
    }

    /// Combines size and shape; what was not named stays as it was.
    pub fn finish(&mut self, pipe: &mut Pipe) -> Result<(), String> {
        let old = pipe.delay.jitter.take();
        let size = self.size.or_else(|| old.as_ref().and_then(size_of));
        pipe.delay.jitter = match (self.shape.take(), self.size) {
            (None, None) => old,
            (None, Some(Nanos::ZERO)) => None,
            (None, Some(size)) => resized(old, size)?,
            (Some(shape), _) => Some(sized(shape, size)?),
        };
        Ok(())
    }
}

/// Returns the value of `jitter` that makes this distribution; `None`: it has none.
fn size_of(distribution: &Distribution) -> Option<Nanos> {
    match *distribution {
        Distribution::Uniform { spread } => Some(spread),
        Distribution::Normal { sd } | Distribution::Table { sd, .. } => Some(sd),
        Distribution::Exponential { mean } => Some(mean),
        Distribution::Pareto { scale, shape } => Some(nanos(scale.0 as f64 / (shape - 1.0))),
        Distribution::Gamma { shape, scale } => Some(nanos(scale.0 as f64 * shape)),
        Distribution::Empirical { .. } => None,
    }
}

/// Changes the size of a distribution; without a distribution, the jitter is uniform, as in netem.
fn resized(old: Option<Distribution>, size: Nanos) -> Result<Option<Distribution>, String> {
    let shape = match old {
        None | Some(Distribution::Uniform { .. }) => Shape::Uniform,
        Some(Distribution::Normal { .. }) => Shape::Normal,
        Some(Distribution::Exponential { .. }) => Shape::Exponential,
        Some(Distribution::Pareto { shape, .. }) => Shape::Lomax(shape, None),
        Some(Distribution::Gamma { shape, .. }) => Shape::Gamma(shape, None),
        Some(Distribution::Table { values, file, .. }) => Shape::Table(values, file),
        Some(Distribution::Empirical { file, .. }) => {
            return Err(format!(
                "jitter: the delays of {file} have their own size; name a distribution to leave them, as in \"jitter 2ms distribution normal\""
            ));
        }
    };
    sized(shape, Some(size)).map(Some)
}

/// Makes a distribution from a shape and a size.
fn sized(shape: Shape, size: Option<Nanos>) -> Result<Distribution, String> {
    let of = |name: &str| {
        size.filter(|size| *size > Nanos::ZERO)
            .ok_or_else(|| format!("distribution {name} needs its size: write \"jitter 2ms distribution {name}\""))
    };
    Ok(match shape {
        Shape::Uniform => Distribution::Uniform { spread: of("uniform")? },
        Shape::Normal => Distribution::Normal { sd: of("normal")? },
        Shape::Exponential => Distribution::Exponential { mean: of("exponential")? },
        Shape::Lomax(shape, Some(scale)) => Distribution::Pareto { scale, shape },
        Shape::Lomax(shape, None) => {
            Distribution::Pareto { scale: nanos(of("lomax 3")?.0 as f64 * (shape - 1.0)), shape }
        }
        Shape::Gamma(shape, Some(scale)) => Distribution::Gamma { shape, scale },
        Shape::Gamma(shape, None) => Distribution::Gamma { shape, scale: nanos(of("gamma 2")?.0 as f64 / shape) },
        Shape::Table(values, file) => Distribution::Table { sd: of(&file)?, values, file },
        Shape::Empirical(distribution) => distribution,
    })
}

fn nanos(value: f64) -> Nanos {
    // Casts of floats saturate: no overflow.
    Nanos(value.round() as i64)
}

fn shape(words: &mut Words) -> Result<Shape, String> {
    let (name, path) = words.file("distribution", "normal")?;
    Ok(match name.as_str() {
        "uniform" => Shape::Uniform,
        "normal" => Shape::Normal,
        "exponential" => Shape::Exponential,
        "gamma" => {
            let (shape, scale) = shape_and_scale(&name, words)?;
            Shape::Gamma(shape, scale)
        }
        "lomax" => {
            let (shape, scale) = shape_and_scale(&name, words)?;
            if shape <= 1.0 {
                return Err(format!("distribution lomax {shape}: a shape of 1 or less has no mean; give more than 1"));
            }
            Shape::Lomax(shape, scale)
        }
        "ecdf" => empirical(words)?,
        _ => Shape::Table(files::distribution::table(&name, &path)?, name),
    })
}

/// Parses "2.5" or "2.5 scale 1ms".
fn shape_and_scale(name: &str, words: &mut Words) -> Result<(f64, Option<Nanos>), String> {
    let of = format!("distribution {name}");
    let shape = words.real(&of, "2")?;
    if shape <= 0.0 {
        return Err(format!("{of}: a shape must be above 0"));
    }
    Ok((shape, words.behind("scale", Words::time)?))
}

fn empirical(words: &mut Words) -> Result<Shape, String> {
    let (file, path) = words.file("ecdf", "delays.txt")?;
    Ok(Shape::Empirical(Distribution::Empirical { points: files::distribution::empirical(&path)?, file }))
}
