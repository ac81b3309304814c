//! Parses rules from TOML tables.

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};

use super::{Wrong, at, in_order, known, scalar, whole};
use crate::config::selection::FIELDS;
use crate::config::{Action, Match, Rule};

/// Keys of a rule that are not conditions.
const KEYS: [&str; 4] = ["action", "class", "number", "pipe"];

/// The action of a rule while its keys are parsed.
#[derive(Default)]
struct Target {
    pipe: Option<String>,
    class: Option<String>,
    action: Option<String>,
}

pub(super) fn rule(table: &DeTable<'_>, start: usize, rules: &mut Vec<Rule>) -> Result<(), Wrong> {
    let mut on = Match::default();
    let mut target = Target::default();
    let mut number = rules.iter().map(|rule| rule.number).max().unwrap_or(0).saturating_add(100);
    let mut keys: Vec<_> = FIELDS.iter().map(|field| field.key).chain(KEYS).collect();
    keys.sort_unstable();
    for (key, value) in in_order(table) {
        match known(key, &keys)? {
            "number" => number = whole(value)?,
            "pipe" => target.pipe = Some(scalar(value)?),
            "class" => target.class = Some(scalar(value)?),
            "action" => target.action = Some(scalar(value)?),
            name => field(name, value, &mut on)?,
        }
    }
    let action = target.action().map_err(|problem| Wrong { at: start, problem })?;
    rules.push(Rule { number, on, action });
    Ok(())
}

impl Target {
    fn action(self) -> Result<Action, String> {
        match (self.pipe, self.class, self.action.as_deref()) {
            (Some(pipe), class, None | Some("pipe")) => Ok(Action::Pipe { pipe, class }),
            (None, None, Some("pass")) => Ok(Action::Pass),
            (None, None, Some("drop")) => Ok(Action::Drop),
            (None, None, Some("count")) => Ok(Action::Count),
            (None, Some(_), _) => Err("a class needs the pipe that it is of; give pipe".to_owned()),
            (None, None, None) => {
                Err("what becomes of its packets? give pipe, or action = \"pass\", \"drop\" or \"count\"".to_owned())
            }
            (Some(_), _, Some(action)) => {
                Err(format!("both a pipe and the action {action:?} are given; leave one out"))
            }
            (None, None, Some(action)) => {
                Err(format!("{action:?} is not an action; there are pass, drop and count, or give pipe"))
            }
        }
    }
}

fn field(name: &str, value: &Spanned<DeValue<'_>>, on: &mut Match) -> Result<(), Wrong> {
    let text = scalar(value)?;
    let Some(field) = FIELDS.iter().find(|field| field.key == name) else { return Ok(()) };
    (field.read)(&text, on).map_err(|why| at(value, format!("{name}: {why}")))
}
