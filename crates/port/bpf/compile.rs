//! Compiles the BPF programs of a crate's `bpf/` with clang, for its build script.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles these programs into `OUT_DIR`, or fails the build with the reason.
pub fn compile_all(programs: &[&str]) {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-env-changed=SOJOURN_SYSROOT");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    for program in programs {
        if let Err(why) = compile(program, &out) {
            // One line, because cargo prints it unchanged.
            let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
            eprintln!("{package}: bpf/{program}.bpf.c was not compiled: {why}");
            std::process::exit(1);
        }
    }
}

fn compile(program: &str, out: &Path) -> Result<(), String> {
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang"));
    let output = Command::new(&clang)
        .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", "bpf"])
        .args(includes())
        .arg("-c")
        .arg(format!("bpf/{program}.bpf.c"))
        .arg("-o")
        .arg(out.join(format!("{program}.bpf.o")))
        .output()
        .map_err(|error| {
            format!("{} does not start ({error}); install it: `apt-get install clang`", clang.display())
        })?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// The include folders: `stream.h` beside the programs of `port`; libbpf's headers, from libbpf-sys; and the kernel's
/// UAPI headers, part of which Debian keeps by architecture. Those of another architecture are below `SOJOURN_SYSROOT`.
fn includes() -> Vec<OsString> {
    let architecture = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let root = std::env::var("SOJOURN_SYSROOT").unwrap_or_default();
    let kernels = format!("-I{root}/usr/include/{architecture}-linux-gnu");
    let mut includes = vec![OsString::from(kernels), OsString::from("-I../port/bpf")];
    if let Some(libbpf) = std::env::var_os("DEP_BPF_INCLUDE") {
        let mut include = OsString::from("-I");
        include.push(libbpf);
        includes.push(include);
    }
    includes
}
