//! Compiles the programs of `bpf/` with clang, for [`src/kernel`](src/kernel/mod.rs) to carry in the binary, and their decisions
//! a second time for this machine, so that tests and simulations run the same lines. Makes Rust's `State` of `bpf/fields.h`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The same programs twice: with tests for the fields that some kernel since 5.15 is known to lack, and with a test for each.
const OBJECTS: [(&str, &[&str]); 2] = [("tcplog.bpf.o", &[]), ("tcplog_fallback.bpf.o", &["-DFALLBACK"])];

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-env-changed=SOJOURN_SYSROOT");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    for (object, flags) in OBJECTS {
        if let Err(why) = compile(flags, &out.join(object)) {
            // One line: cargo shows it as it is.
            eprintln!("crates/tcplog/bpf/tcplog.bpf.c was not compiled: {why}");
            std::process::exit(1);
        }
    }
    let state = cc::Build::new().file("bpf/rust.h").flag("-P").flag("-xc").expand();
    std::fs::write(out.join("state.rs"), state).expect("the build folder can be written");
    cc::Build::new().file("bpf/decide.c").flag("-O2").warnings_into_errors(true).compile("sojourn_decide");
}

fn compile(flags: &[&str], object: &Path) -> Result<(), String> {
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang"));
    let output = Command::new(&clang)
        .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-mcpu=v3"])
        .args(flags)
        .args(stores())
        .args(includes())
        .args(["-c", "bpf/tcplog.bpf.c", "-o"])
        .arg(object)
        .output()
        .map_err(|error| {
            format!("{} does not start ({error}); install it: `apt-get install clang`", clang.display())
        })?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    // What debuggers want is most of it, and the loader does not; where the tool is missing, it stays.
    let _ = Command::new("llvm-strip").arg("-g").arg(object).output();
    Ok(())
}

/// Whether the machine makes stores visible in their order: then the programs need no barrier between a record and what says
/// that it is whole.
fn stores() -> Option<&'static str> {
    let architecture = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    (architecture == "x86_64").then_some("-DSTORES_IN_ORDER")
}

/// Where the headers are: libbpf's own, which libbpf-sys brings, and those of the kernel's interface, of which Debian keeps
/// a part by architecture. Those of another architecture lie below `SOJOURN_SYSROOT`.
fn includes() -> Vec<OsString> {
    let architecture = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let root = std::env::var("SOJOURN_SYSROOT").unwrap_or_default();
    let mut includes = vec![OsString::from(format!("-I{root}/usr/include/{architecture}-linux-gnu"))];
    if let Some(libbpf) = std::env::var_os("DEP_BPF_INCLUDE") {
        let mut include = OsString::from("-I");
        include.push(libbpf);
        includes.push(include);
    }
    includes
}
