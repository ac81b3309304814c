//! The examples of docs/reference/emulate.md are parsed, and can be run.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::path::Path;

use sojourn_emulate::config::{Config, Pipe, check, check_pipe, config_from_dummynet, load, pipe_from_words};

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/emulate.md");
    std::fs::read_to_string(path).unwrap()
}

/// Returns the code blocks of a kind.
fn blocks(kind: &str) -> Vec<String> {
    let page = page();
    let found: Vec<String> = page
        .split("```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.strip_prefix(kind)?.strip_prefix('\n'))
        .map(str::to_owned)
        .collect();
    assert!(!found.is_empty(), "no block of {kind}");
    found
}

/// Parses a configuration from its own file.
fn loaded(name: &str, text: &str) -> Config {
    let path = std::env::temp_dir().join(format!("sojourn-reference-{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    let read = load(&path);
    std::fs::remove_file(&path).unwrap();
    read.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn configuration_strings_of_the_reference_are_accepted() {
    for line in blocks("words").iter().flat_map(|block| block.lines()) {
        let base = Pipe { name: "forward".to_owned(), ..Pipe::default() };
        let pipe = pipe_from_words(line, &base).unwrap_or_else(|error| panic!("{line}: {error}"));
        check_pipe(&pipe).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_ne!(pipe, base, "{line}");
    }
}

#[test]
fn ipfw_lines_of_the_reference_are_accepted() {
    for text in blocks("ipfw") {
        let config = config_from_dummynet(&text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(check(&config), Ok(()));
        assert_eq!(loaded("ipfw", &text), config);
        assert_eq!((config.pipes.len(), config.rules.len()), (2, 5));
    }
}

#[test]
fn toml_of_the_reference_is_accepted() {
    for text in blocks("toml") {
        let config = loaded("toml", &text);
        assert_eq!((config.pipes.len(), config.rules.len(), config.seed), (2, 2, 7));
    }
}

#[test]
fn traces_of_the_reference_are_accepted() {
    for text in blocks("csv") {
        let path = std::env::temp_dir().join(format!("sojourn-reference-{}.csv", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let read =
            pipe_from_words(&format!("trace {}", path.display()), &Pipe { name: "p".to_owned(), ..Pipe::default() });
        std::fs::remove_file(&path).unwrap();
        check_pipe(&read.unwrap()).unwrap();
    }
}
