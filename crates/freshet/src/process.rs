//! What the operating system knows about this process.

use std::{fs, path::Path};

use rustix::process::{Resource, getrlimit};

fn status_field(name: &str) -> Option<u64> {
    Some(status_number(name)? * 1024)
}

/// How many threads this process has; 0 where it is not known.
pub fn threads() -> u64 {
    status_number("Threads").unwrap_or(0)
}

fn status_number(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_start_matches(':').split_whitespace().next()?.parse().ok()
}

/// The most memory that this process has had resident so far, in bytes; 0 where it is not known.
pub fn peak_resident_bytes() -> u64 {
    status_field("VmHWM").unwrap_or(0)
}

/// The memory that this process has resident, in bytes; 0 where it is not known.
pub fn resident_bytes() -> u64 {
    status_field("VmRSS").unwrap_or(0)
}

/// The memory that this process could have at most, in bytes: the machine's, or what its control
/// group or itself is limited to; 0 where it is not known.
pub fn available_bytes() -> u64 {
    let first = |text: String| text.split_whitespace().find_map(|word| word.parse::<u64>().ok());
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.and_then(|text| first(text.lines().find(|line| line.starts_with("MemTotal"))?.to_owned()));
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    // Those above bound it, too. In a container its own may look like the first of all.
    let groups = Path::new(own).ancestors().map(|group| Path::new("/sys/fs/cgroup").join(group).join("memory.max"));
    let group = groups.filter_map(|file| fs::read_to_string(file).ok().and_then(first)).min();
    let process = [Resource::Data, Resource::As].map(|limit| getrlimit(limit).current.unwrap_or(u64::MAX));
    let most = process.into_iter().chain(group).fold(u64::MAX, u64::min);
    machine.map_or(0, |kilobytes| (kilobytes * 1024).min(most))
}

/// How many bytes more this process may map before the system refuses (`ulimit -d`, `-v`). None
/// where there is no such limit.
pub fn left_to_map() -> Option<u64> {
    let left = |(limited, mapped)| {
        let limit = getrlimit(limited).current?;
        Some(limit.saturating_sub(status_field(mapped)?))
    };
    [(Resource::Data, "VmData"), (Resource::As, "VmSize")].into_iter().filter_map(left).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_known() {
        assert!(threads() > 0 && available_bytes() > resident_bytes());
        assert!(resident_bytes() > 100_000 && peak_resident_bytes() >= resident_bytes() / 2);
    }
}
