//! Volumes that do nothing and accept every valid request: what arrives on a control socket is parsed as for real ones.

use crate::control::{Answers, HandedOver, Sending};
use crate::properties::{Change, Research, parsed};
use crate::sent::Sent;
use crate::snapshots::Order;
use serde_json::{Value, json};
use vellum_device::{NewSize, Sought};

/// The volumes.
pub struct Volumes;

impl Answers for Volumes {
    fn stats(&self) -> Value {
        json!([])
    }

    fn properties(&self, _volume: &Value, set: &Value, study: &Value) -> Result<Value, String> {
        let mut changes = 0;
        if !set.is_null() {
            changes += parsed::<Change>(set)?.len();
        }
        if !study.is_null() {
            changes += parsed::<Research>(study)?.len();
        }
        Ok(json!(changes))
    }

    fn sweep(&self, _sought: Sought, _volume: &Value, order: &Value) -> Result<Value, String> {
        Ok(order.clone())
    }

    fn scrub(&self, _volume: &Value, order: &Value, _rate: &Value) -> Result<Value, String> {
        Ok(order.clone())
    }

    fn grow(&self, _volume: &Value, size: NewSize) -> Result<Value, String> {
        serde_json::to_value(size.logical_blocks).map_err(|error| error.to_string())
    }

    fn shrink(&self, _volume: &Value, blocks: u64) -> Result<Value, String> {
        Ok(json!(blocks))
    }

    fn snapshots(&self, _volume: &Value, order: &Value) -> Result<Value, String> {
        serde_json::to_value(Order::read(order)?).map_err(|error| error.to_string())
    }

    fn send(&self, _volume: &Value, order: &Value) -> Result<Sending, String> {
        Sent::read(order)?;
        Ok(Box::new(|_| Ok(())))
    }

    fn hand_over(&self, order: &Value) -> Result<HandedOver, String> {
        Ok(HandedOver {
            told: order.clone(),
            file: None,
            ends: false,
        })
    }

    fn go_on(&self) {}

    fn journal(&self, _volume: &Value, change: &Value) -> Result<Value, String> {
        Ok(change.clone())
    }
}
