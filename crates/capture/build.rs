//! Compiles the BPF programs of `bpf/`.

#[path = "../port/bpf/compile.rs"]
mod compile;

fn main() {
    compile::compile_all(&["tap"]);
}
