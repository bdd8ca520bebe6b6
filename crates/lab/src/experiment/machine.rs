//! Where something was measured.

use std::fs;

use freshet::{units, units::now_micros};

fn value_of(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Processors, memory, kernel, program and time, in one line. What the system does not tell is left
/// out.
pub(crate) fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut parts = vec![format!("{processors} processor(s)")];
    parts.extend(value_of(&read("/proc/cpuinfo"), "model name"));
    let memory = value_of(&read("/proc/meminfo"), "MemTotal");
    let kilobytes = memory.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    parts.extend(kilobytes.map(|kilobytes| format!("{} of memory", units::bytes(kilobytes * 1024))));
    let kernel = read("/proc/sys/kernel/osrelease");
    if !kernel.trim().is_empty() {
        parts.push(format!("Linux {}", kernel.trim()));
    }
    let build = if cfg!(debug_assertions) { "a debug build: figures say little" } else { "release build" };
    parts.push(format!("Freshet {} ({build})", env!("CARGO_PKG_VERSION")));
    let load = read("/proc/loadavg");
    parts.extend(load.split_whitespace().next().map(|load| format!("load average at the end {load}")));
    parts.push(units::date(now_micros()));
    parts.join(", ")
}
