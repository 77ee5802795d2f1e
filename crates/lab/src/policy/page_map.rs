//! The options of the baseline, a page map.

use super::levelling;
use crate::base::{ENTRY_BYTES, Levelling, Order, Victim};

const TAKES: &str = "base takes greedy, cost-benefit, fifo, random, d=1 to d=1000, hot-cold, unordered, \
oftl, stream, handles=tenants, handles=heat, level-dynamic, level-static=, map-cache=, op=";

/// By what the host names a placement handle with each write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tagging {
    /// By the tenant that writes.
    Tenants,
    /// By how often the host writes the block.
    Heat,
}

/// The options of the baseline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// How its collector chooses.
    pub victim: Victim,
    /// The order in which its map is updated.
    pub order: Order,
    /// What is done about uneven wear.
    pub levelling: Levelling,
    /// True if hot and cold data are kept apart.
    pub separated: bool,
    /// Map entries that fit in RAM, with the map on flash; none: the whole map is in RAM.
    pub map_cache: Option<u32>,
    /// By what the host names placement handles; none: it names none.
    pub handles: Option<Tagging>,
}

impl Base {
    /// Sets an option.
    pub(super) fn set(&mut self, option: &str) -> Result<(), String> {
        if let Some(set) = levelling::set(&mut self.levelling, option) {
            return set;
        }
        match option.split_once('=') {
            None => match option {
                "greedy" => self.victim = Victim::Greedy,
                "fifo" => self.victim = Victim::Fifo,
                "cost-benefit" => self.victim = Victim::CostBenefit,
                "random" => self.victim = Victim::Choices(1),
                "hot-cold" => self.separated = true,
                "unordered" => self.order = Order::Unordered,
                "oftl" => self.order = Order::Journal,
                "stream" => self.order = Order::Stream,
                _ => return Err(TAKES.into()),
            },
            Some(("d", draws)) => {
                let draws = draws
                    .parse()
                    .ok()
                    .filter(|draws| (1..=1000).contains(draws));
                self.victim = Victim::Choices(draws.ok_or(TAKES)?);
            }
            Some(("handles", "tenants")) => self.handles = Some(Tagging::Tenants),
            Some(("handles", "heat")) => self.handles = Some(Tagging::Heat),
            Some(("map-cache", kib)) => {
                let kib = kib.parse().ok().filter(|kib| (4..=1 << 22).contains(kib));
                let kib: u32 = kib.ok_or("map-cache= needs KiB, from 4 to 4194304")?;
                self.map_cache = Some(kib * (1024 / ENTRY_BYTES as u32));
            }
            Some(_) => return Err(TAKES.into()),
        }
        Ok(())
    }

    /// The options that differ from the default.
    pub(super) fn shown(&self) -> Vec<String> {
        let mut options = Vec::new();
        match self.victim {
            Victim::Greedy => {}
            Victim::CostBenefit => options.push("cost-benefit".to_string()),
            Victim::Fifo => options.push("fifo".to_string()),
            Victim::Choices(1) => options.push("random".to_string()),
            Victim::Choices(draws) => options.push(format!("d={draws}")),
        }
        if self.separated {
            options.push("hot-cold".to_string());
        }
        match self.order {
            Order::Off => {}
            Order::Unordered => options.push("unordered".to_string()),
            Order::Journal => options.push("oftl".to_string()),
            Order::Stream => options.push("stream".to_string()),
        }
        match self.handles {
            None => {}
            Some(Tagging::Tenants) => options.push("handles=tenants".to_string()),
            Some(Tagging::Heat) => options.push("handles=heat".to_string()),
        }
        options.extend(levelling::shown(self.levelling));
        if let Some(entries) = self.map_cache {
            let kib = u64::from(entries) * ENTRY_BYTES / 1024;
            options.push(format!("map-cache={kib}"));
        }
        options
    }

    /// Why its options contradict each other, if they do.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        if self.map_cache.is_some() && self.order != Order::Off {
            return Some(
                "map-cache= goes without unordered, oftl and stream: those keep the map in RAM",
            );
        }
        let alone = !self.separated && self.map_cache.is_none() && self.order == Order::Off;
        (self.handles.is_some() && !alone).then_some(
            "handles= goes without hot-cold (the drive's own way to keep data apart), map-cache=, \
             unordered, oftl and stream",
        )
    }
}
