//! A group of users on this machine, by name or number.

use std::ffi::CString;
use std::str::FromStr;

/// The group's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(pub u32);

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The highest number is not a group: in chown it means to leave the group unchanged.
        if let Ok(number) = text.parse::<u32>()
            && number != u32::MAX
        {
            return Ok(Self(number));
        }
        named(text).ok_or_else(|| format!("there is no group {text:?}: see `getent group`"))
    }
}

/// Looks up a group in the machine's own lists and its directory service.
fn named(text: &str) -> Option<Group> {
    /// A large group's entry contains all its members.
    const BYTES: usize = 1 << 20;
    let name = CString::new(text).ok()?;
    let mut bytes = vec![0; BYTES];
    // SAFETY: zeros are a valid entry.
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: all of these live during the call, and the call is given the number of bytes.
    let failed = unsafe {
        libc::getgrnam_r(
            name.as_ptr(),
            &raw mut entry,
            bytes.as_mut_ptr(),
            bytes.len(),
            &raw mut found,
        )
    };
    (failed == 0 && !found.is_null()).then_some(Group(entry.gr_gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_a_name_or_a_number() {
        assert_eq!("root".parse(), Ok(Group(0)));
        assert_eq!("123456".parse(), Ok(Group(123_456)));
        for wrong in ["", "no such group", "-1", "4294967295", "a\0b"] {
            assert!(wrong.parse::<Group>().is_err(), "{wrong}");
        }
    }
}
