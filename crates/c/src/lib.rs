//! The library `libsluice.so`, for C and for languages that can call C. The header `sdk/c/sluice.h`
//! is generated from these files.
//!
//! | module | what |
//! |---|---|
//! | `border` | the boundary between C and Rust: results, the last error, panics |
//! | `memory` | the memory of the caller; the one place that trusts it |
//! | `handles`, `listing` | the objects behind handle numbers |
//! | `options` | how a volume is opened, as text |
//! | `structs` | the structures of the header |
//! | `volumes`, `files`, `listings`, `names`, `attrs`, `xattrs`, `acls`, `trees`, `quotas` | the functions |
//!
//! What must stay true: a handle is a number, so a wrong handle gives an error, not a crash. No
//! panic leaves the library. Every function may be called from any thread.

// SAFETY: a library for C exports names and reads memory that its caller passes. The names all
// begin with `sluice_`; the memory is read in `memory` only.
#![allow(unsafe_code, reason = "a library for C")]
#![allow(unreachable_pub, reason = "what is exported is public, and nothing else is")]
#![allow(clippy::doc_markdown, reason = "the documentation is that of a header for C")]

mod acls;
mod attrs;
mod border;
mod files;
mod handles;
mod listing;
mod listings;
mod memory;
mod names;
mod options;
mod quotas;
mod structs;
mod trees;
mod volumes;
mod xattrs;
