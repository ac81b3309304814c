/* The fields of a sample's state in Rust: build.rs runs the preprocessor over this file; src/layout.rs includes the
 * result. */
#include "fields.h"

#define RUST___u8 u8
#define RUST___u16 u16
#define RUST___u32 u32
#define RUST___u64 u64
#define RUST_MEMBER(type, name, ...) name: RUST_##type,
#define RUST_SIZE(type, ...) + size_of::<RUST_##type>()

layout! { #[doc = "The control block at one moment."] pub struct State {
	STATE_FIELDS(RUST_MEMBER, RUST_MEMBER)
	reserved: [u8; RESERVED(RUST_SIZE)],
} }
