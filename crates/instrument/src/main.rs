//! The binary. All code is in the library, so that fuzzing can call its readers, too.

use std::process::ExitCode;

fn main() -> ExitCode {
    sojourn_instrument::main()
}
