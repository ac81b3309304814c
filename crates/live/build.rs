//! Compile the programs of `bpf/`.

#[path = "../port/bpf/compile.rs"]
mod compile;

fn main() {
    println!("cargo:rerun-if-changed=../port/bpf/stream.h");
    compile::compile_all(&["live", "count"]);
}
