//! What a server tells of a volume.

use serde_json::Value;

/// A volume that somebody serves.
#[derive(Clone, Debug)]
pub struct Observed {
    uuid: String,
    told: Option<Value>,
}

impl Observed {
    /// A volume, and its server's answer for it: its path, counters and troubles. None when the server does not answer: it opens
    /// its volumes, stops or is stuck.
    pub fn new(uuid: String, told: Option<Value>) -> Self {
        Self { uuid, told }
    }

    /// Its UUID.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// What its server tells.
    pub fn told(&self) -> Option<&Value> {
        self.told.as_ref()
    }

    /// Its file; its UUID when that is not known.
    pub fn name(&self) -> &str {
        let path = self.told.as_ref().and_then(|told| told["path"].as_str());
        path.unwrap_or(&self.uuid)
    }

    /// What is counted under a name like `core.corrupt_blocks`; none when it is not.
    pub fn counter(&self, name: &str) -> Option<u64> {
        counter(self.told.as_ref()?, name)?.as_u64()
    }

    /// The same, where what is not counted is nothing.
    pub fn count(&self, name: &str) -> u64 {
        self.counter(name).unwrap_or(0)
    }
}

/// What a server's answer for a volume has under a name like `core.corrupt_blocks`.
pub fn counter<'a>(told: &'a Value, name: &str) -> Option<&'a Value> {
    let stats = told.get("stats")?;
    name.split('.').try_fold(stats, |value, key| value.get(key))
}
