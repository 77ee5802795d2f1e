//! Properties: what a user chooses, stored in the volume, and what of it is in effect (docs/decisions/0026-set-and-get.md).

mod change;
mod effect;
mod private;
mod served;
mod settings;
mod show;
mod table;

pub use change::{Change, Changes, Research, Run, parsed};
pub use effect::{changed, policy_of, taken_from};
pub use private::without_names;
pub use served::Chosen;
pub use settings::Settings;
pub use show::{in_a_line, listed, written};
pub use table::{TABLE, named};
pub use vellum_policies::table::{Has, Tier};
