//! The lab: the engine that is served, on simulated flash and in virtual time.
//!
//! A [`scenario`] says what runs: a device, policies, and a workload or a trace. [`sim`] is the event loop. [`vellum`]
//! drives the engine; [`base`] is the page map that it is compared with; [`flash`] is what both write to. The same
//! scenario with the same seed gives the same bytes of output.
#![forbid(unsafe_code)]

pub mod admission;
pub mod applications;
pub mod base;
mod blockdev;
pub mod compare;
pub mod content;
pub mod csv;
pub mod drives;
pub mod fio_job;
pub mod flash;
pub mod html;
pub mod jobs;
pub mod journal;
pub mod latency;
pub mod life;
pub mod made_up;
pub mod oracle;
pub mod outcome;
pub mod paper;
pub mod parallel;
pub mod policy;
pub mod progress;
pub mod queues;
pub mod raw;
pub mod replay;
pub mod report;
pub mod rng;
pub mod scenario;
pub mod series;
pub mod shares;
pub mod sim;
pub mod sizes;
pub mod sure;
pub mod svg;
pub mod sweep;
pub mod tenants;
pub mod timeline;
pub mod trace;
pub mod vellum;
pub mod verdict;
pub mod watching;
pub mod workload;
pub mod zipf;
pub mod zoned;
pub mod zones;
