//! The table of all choices, of a volume and in the lab. The command line, the lab and the documents take their words
//! from it.
//!
//! A row has the name, the values, the default, the layouts, what it does, what it costs, and who it is for. How a
//! value is stored is not here: `vellum-cli`'s properties do that for a volume, and the lab's policies for the lab.
#![forbid(unsafe_code)]

pub mod kind;
pub mod size;
pub mod table;
pub mod words;
