//! Stores of several streams in a directory.

use std::path::Path;

use freshet_base::ClusterId;
use freshet_log::{LogStore, SegmentStore, StoreConfig};

pub const CONFIG: StoreConfig = StoreConfig { cluster: ClusterId(7), segment_size: 64 << 10 };

/// Opens the segments of `streams` streams, each in a directory of its own.
pub fn store(directory: &Path, streams: usize) -> LogStore {
    let open = |stream: usize| {
        let directory = directory.join(format!("stream-{stream}"));
        std::fs::create_dir_all(&directory).unwrap();
        SegmentStore::open_directory(&directory, CONFIG).unwrap()
    };
    LogStore::of((0..streams).map(open).collect())
}
