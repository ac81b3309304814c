//! The binary.

mod open;

fn main() {}
