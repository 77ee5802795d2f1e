//! A server's answer for a volume.

use serde_json::Value;

/// A volume that a server serves.
#[derive(Clone, Debug)]
pub struct Observed {
    uuid: String,
    told: Option<Value>,
    /// The path of its file, if it is known without the server.
    path: Option<String>,
}

impl Observed {
    /// Makes one from a volume's UUID and its server's answer: its path, counters and troubles. `None` if the server does not
    /// answer, because it is opening its volumes, is stopping, or is stuck.
    pub fn new(uuid: String, told: Option<Value>) -> Self {
        let path = None;
        Self { uuid, told, path }
    }

    /// Adds the path of its file, for a server that does not answer.
    #[must_use]
    pub fn at(self, path: Option<String>) -> Self {
        Self { path, ..self }
    }

    /// Its UUID.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// The server's answer.
    pub fn told(&self) -> Option<&Value> {
        self.told.as_ref()
    }

    /// The path of its file, or its UUID if that is not known.
    pub fn name(&self) -> &str {
        let told = self.told.as_ref().and_then(|told| told["path"].as_str());
        told.or(self.path.as_deref()).unwrap_or(&self.uuid)
    }

    /// The counter with a name like `core.corrupt_blocks`, or `None` if the server does not have it.
    pub fn counter(&self, name: &str) -> Option<u64> {
        counter(self.told.as_ref()?, name)?.as_u64()
    }

    /// The same counter, or zero if the server does not have it.
    pub fn count(&self, name: &str) -> u64 {
        self.counter(name).unwrap_or(0)
    }
}

/// The value under a name like `core.corrupt_blocks` in a server's answer for a volume.
pub fn counter<'a>(told: &'a Value, name: &str) -> Option<&'a Value> {
    let stats = told.get("stats")?;
    name.split('.').try_fold(stats, |value, key| value.get(key))
}
