//! Compiles the BPF programs of `bpf/`, which [`src/bpf`](src/bpf/mod.rs) embeds in the binary.

#[path = "bpf/compile.rs"]
mod compile;

fn main() {
    if std::env::var_os("CARGO_FEATURE_BPF").is_some() {
        compile::compile_all(&["redirect", "bridge", "straight", "detour"]);
    }
}
