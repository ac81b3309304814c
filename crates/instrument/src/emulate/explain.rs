//! `emulate explain`: what is asked, as it is understood, and nothing is done.

use std::io::{self, Write};

use serde_json::json;
use sojourn_emulate::config::to_words;

use super::arguments::Explain;
use super::{asked, show};

/// Prints what options, words and files mean.
///
/// # Errors
/// Says what of it is not understood or contradicts itself.
pub fn run(asked: &Explain) -> anyhow::Result<()> {
    let ports: Vec<_> = asked.ports.iter().map(String::as_str).collect();
    asked::check_ports(&ports)?;
    asked::check_both(&ports)?;
    let config = asked::config(&asked.asked)?;
    let mut output = io::stdout().lock();
    if asked.how.json {
        let pipes: Vec<_> =
            config.pipes.iter().map(|pipe| json!({ "name": pipe.name, "words": to_words(pipe) })).collect();
        writeln!(output, "{}", json!({ "event": "config", "config": config, "pipes": pipes }))?;
        return Ok(());
    }
    if config.pipes.is_empty() {
        writeln!(output, "no pipe: a plain bridge")?;
    }
    for pipe in &config.pipes {
        let words = to_words(pipe);
        writeln!(output, "{}: {}", pipe.name, if words.is_empty() { "(idle)" } else { &words })?;
    }
    for rule in show::told_rules(&config.rules) {
        writeln!(output, "rule {rule}")?;
    }
    Ok(())
}
