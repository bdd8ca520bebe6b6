//! What the operating system knows about this process.

use std::fs;

fn status_field(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim_start_matches(':').split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// The most memory that this process has had resident so far, in bytes; 0 where it is not known.
pub(crate) fn peak_resident_bytes() -> u64 {
    status_field("VmHWM").unwrap_or(0)
}

/// The memory that this process has resident, in bytes; 0 where it is not known.
pub(crate) fn resident_bytes() -> u64 {
    status_field("VmRSS").unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_known() {
        assert!(resident_bytes() > 100_000 && peak_resident_bytes() >= resident_bytes() / 2);
    }
}
