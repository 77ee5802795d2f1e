//! What `smartctl --json --log=devstat` reads from a SATA drive: the device statistics of the ATA standard. The older attributes
//! mean something different for each maker.

use crate::drive::wear::Wear;
use serde_json::Value;

/// Parses a report.
///
/// # Errors
/// If it does not have both figures.
pub fn of_report(report: &str) -> Result<Wear, String> {
    let report: Value =
        serde_json::from_str(report).map_err(|_| "smartctl did not answer in JSON".to_owned())?;
    let pages = report
        .pointer("/ata_device_statistics/pages")
        .and_then(Value::as_array);
    let tables = pages
        .into_iter()
        .flatten()
        .filter_map(|page| page["table"].as_array());
    let rows: Vec<_> = tables.flatten().collect();
    let value = |name: &str| {
        let row = rows.iter().find(|row| row["name"] == name)?;
        let is_valid = row.pointer("/flags/valid").and_then(Value::as_bool) != Some(false);
        is_valid.then(|| row["value"].as_u64()).flatten()
    };
    let sector = report["logical_block_size"].as_u64().unwrap_or(512);
    let used = value("Percentage Used Endurance Indicator");
    let written = value("Logical Sectors Written").and_then(|n| n.checked_mul(sector));
    let used = used.ok_or("its device statistics do not say how much of its life is used")?;
    Ok(Wear {
        used_percent: u8::try_from(used).unwrap_or(u8::MAX),
        step_percent: 1,
        written_bytes: written,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statistics_of_the_standard_are_read() {
        let report = r#"{"logical_block_size":512,"ata_device_statistics":{"pages":[
            {"number":1,"table":[{"name":"Logical Sectors Written","value":1000,"flags":{"valid":true}}]},
            {"number":7,"table":[
                {"name":"Percentage Used Endurance Indicator","value":4,"flags":{"valid":true}}]}]}}"#;
        let wear = of_report(report).unwrap();
        assert_eq!((wear.used_percent, wear.written_bytes), (4, Some(512_000)));
        let invalid = report.replace(
            "\"value\":4,\"flags\":{\"valid\":true}",
            "\"value\":4,\"flags\":{\"valid\":false}",
        );
        for wrong in ["", "[]", "null", r#"{"ata_device_statistics":7}"#, &invalid] {
            assert!(of_report(wrong).is_err(), "{wrong}");
        }
    }
}
