//! Compile the programs of `bpf/` with clang, for [`src/kernel`](src/kernel/mod.rs) to embed in the binary, and their
//! decisions for user space too, so that tests and simulations run the same code. Generate Rust's `State` from
//! `bpf/fields.h`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The objects: with tests only for fields that some kernel since 5.15 is known to lack, and with a test for every
/// field.
const OBJECTS: [(&str, &[&str]); 2] = [("tcplog.bpf.o", &[]), ("tcplog_fallback.bpf.o", &["-DFALLBACK"])];

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-env-changed=SOJOURN_SYSROOT");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    for (object, flags) in OBJECTS {
        if let Err(why) = compile(flags, &out.join(object)) {
            // A single line, which cargo prints unchanged.
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
    // Debug information is most of the object, and the loader does not need it. Without llvm-strip it stays.
    let _ = Command::new("llvm-strip").arg("-g").arg(object).output();
    Ok(())
}

/// Return the flag for architectures with ordered stores: the programs then need no barrier between a record and its
/// commit word.
fn stores() -> Option<&'static str> {
    let architecture = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    (architecture == "x86_64").then_some("-DSTORES_IN_ORDER")
}

/// Return the include paths: libbpf's, which libbpf-sys provides, and those of the kernel UAPI, which Debian partly
/// keeps by architecture. For cross-compilation they are below `SOJOURN_SYSROOT`.
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
