//! What may be chosen, of a volume and in the lab: one table, from which the command line, the lab and the documents have their words.
//!
//! A row says the name, the values, the default, the layouts, what it does, what it costs, and for whom it is. How a value is kept is
//! not here: a volume's is in `vellum-cli`'s properties, the lab's in its policies.
#![forbid(unsafe_code)]

pub mod kind;
pub mod size;
pub mod table;
pub mod words;
