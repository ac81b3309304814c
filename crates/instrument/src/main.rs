//! The binary; all of it is in the library, so that a search for bytes that end it can call its readers, too.

use std::process::ExitCode;

fn main() -> ExitCode {
    sojourn_instrument::main()
}
