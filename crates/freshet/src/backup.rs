//! `freshet backup`, `freshet archive` and `freshet restore`.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant, UNIX_EPOCH},
};

use clap::Args;
use freshet_base::Lsn;
use freshet_engine::node::archive::{self, Archive, ArchiveConfig, Moment, RestoreConfig};

use serde_json::json;

use crate::{
    Failure,
    ending::Ending,
    messages::{self, Format, Levels},
    prints::Prints,
    units, wrong_port,
};

/// Options of `freshet backup`.
#[derive(Debug, Args)]
pub(crate) struct BackupOptions {
    /// The `listen` address of the node to back up: host:port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7401")]
    pub(crate) node: String,
    /// A file with a token from that node, if it is on another machine or another user's.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The directory for the backup.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) prints: Prints,
}

/// Options of `freshet archive`.
#[derive(Debug, Args)]
pub(crate) struct ArchiveOptions {
    /// The `listen` address of the primary: host:port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7401")]
    pub(crate) node: String,
    /// A file with a token from that node, if it is on another machine or another user's, and the
    /// directory holds no backup yet, or its certificate has ended.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The `listen` address of another node that may become primary. Can be repeated.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) peer: Vec<String>,
    /// Size in bytes of the buffer that the log goes through: a power of two, no smaller than the
    /// primary's buffer.
    #[arg(long, value_name = "BYTES", default_value_t = freshet_engine::LogSettings::default().buffer_bytes)]
    pub(crate) log_buffer_bytes: usize,
    /// The directory for the archive.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) prints: Prints,
    /// End cleanly when standard input ends: for processes that start archives.
    #[arg(long, hide = true)]
    pub(crate) while_stdin: bool,
}

/// Options of `freshet restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreOptions {
    /// A backup or archive, or the directory of a node that is not running.
    #[arg(long, value_name = "DIR")]
    pub(crate) backup: PathBuf,
    /// An archive with the log since the backup, if that is in another directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) archive: Option<PathBuf>,
    /// The directory of each stream of that log, if they are elsewhere. Repeat it for each stream.
    #[arg(long, value_name = "DIR")]
    pub(crate) log_dir: Vec<PathBuf>,
    /// Restore every commit that ends at or below this LSN; `freshet.last_commit` is where one
    /// begins. [default: everything]
    #[arg(long, value_name = "LSN", conflicts_with = "to_time")]
    pub(crate) to_lsn: Option<u64>,
    /// Restore what had committed by this time, like 2027-01-31T23:59:59Z, or seconds since 1970.
    /// Commits of the last tenth of a second before it may be missing; none after it is restored. A
    /// time behind the end of the log restores everything.
    #[arg(long, value_name = "TIME")]
    pub(crate) to_time: Option<String>,
    /// The new node's directory.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) prints: Prints,
}

/// Makes a backup.
pub(crate) fn backup(options: &BackupOptions) -> Result<ExitCode, Failure> {
    let begun = Instant::now();
    let backed_up = archive::backup(&ArchiveConfig {
        directory: options.directory.clone(),
        node: options.node.clone(),
        token_file: options.token_file.clone(),
        peers: Vec::new(),
        buffer_bytes: freshet_engine::LogSettings::default().buffer_bytes,
    })
    .map_err(|cause| wrong_port::explain(cause, [options.node.as_str()]))?;
    let (at, rows, bytes, seconds) = (backed_up.at.0, backed_up.rows, backed_up.bytes, begun.elapsed().as_secs_f64());
    let value = json!({ "at": at, "rows": rows, "bytes": bytes, "seconds": seconds });
    options.prints.show(&value, || {
        format!("backup at LSN {at} in {seconds:.1} s: {} rows, {}", units::grouped(rows), units::bytes(bytes))
    });
    Ok(ExitCode::SUCCESS)
}

/// Archives until a signal comes.
pub(crate) fn archive(options: &ArchiveOptions) -> Result<ExitCode, Failure> {
    let ending = Ending::listen(options.while_stdin)?;
    messages::begin(Format::default(), &Levels::default())?;
    let config = ArchiveConfig {
        directory: options.directory.clone(),
        node: options.node.clone(),
        token_file: options.token_file.clone(),
        peers: options.peer.clone(),
        buffer_bytes: options.log_buffer_bytes,
    };
    let archive = ending.while_starting(|| Archive::start(&config));
    let archive = archive.map_err(|cause| wrong_port::explain(cause, [options.node.as_str()]))?;
    let mut ready = false;
    let mut warned = String::new();
    loop {
        let status = archive.status();
        match &status.link {
            freshet_engine::node::LinkStatus::Failed { why } => {
                let why = why.clone();
                let reached = archive.stop().map_err(Failure::new)?;
                return Err(Failure::new(format!("the archive reaches up to {reached} and cannot continue: {why}")));
            }
            freshet_engine::node::LinkStatus::Following { node, .. } if !ready => {
                println!("ready {{\"following\":\"{node}\",\"from\":{}}}", status.persisted.0);
                io::stdout().flush()?;
                ready = true;
            }
            freshet_engine::node::LinkStatus::Connecting { last_failure: Some(why), .. } if *why != warned => {
                tracing::warn!(cause = why, "the archive does not follow; it tries again");
                warned.clone_from(why);
            }
            _ => {}
        }
        if ending.wait_for(Duration::from_millis(if ready { 1000 } else { 20 })) {
            break;
        }
    }
    let reached = archive.stop().map_err(Failure::new)?;
    options.prints.show(&json!({ "archived_to": reached.0 }), || format!("archived up to LSN {}", reached.0));
    Ok(ExitCode::SUCCESS)
}

/// Makes a node's directory.
pub(crate) fn restore(options: &RestoreOptions) -> Result<ExitCode, Failure> {
    let begun = Instant::now();
    let moment = match (&options.to_lsn, &options.to_time) {
        (Some(lsn), _) => Moment::Lsn(Lsn(*lsn)),
        (None, Some(text)) => Moment::Time(time(text)?),
        (None, None) => Moment::End,
    };
    let restored = archive::restore(&RestoreConfig {
        backup: options.backup.clone(),
        archive: options.archive.clone(),
        streams: options.log_dir.clone(),
        directory: options.directory.clone(),
        moment,
    })?;
    let moment = restored.time.map_or("at no known time".to_owned(), |micros| {
        let time = UNIX_EPOCH + Duration::from_micros(micros);
        format!("which was at {} or a moment later", humantime::format_rfc3339_micros(time))
    });
    let (end, rows, log_bytes) = (restored.end.0, restored.rows, restored.log_bytes);
    let seconds = begun.elapsed().as_secs_f64();
    let value = json!({
        "end": end, "time_us": restored.time, "rows": rows, "log_bytes": log_bytes, "seconds": seconds,
        "directory": options.directory,
    });
    options.prints.show(&value, || {
        format!(
            "restored to LSN {end} ({moment}) in {seconds:.1} s: {} rows of a checkpoint, {} of log\nstart it with: \
             freshet serve --directory {}",
            units::grouped(rows),
            units::bytes(log_bytes),
            options.directory.display()
        )
    });
    Ok(ExitCode::SUCCESS)
}

/// Microseconds since 1970.
fn time(text: &str) -> Result<u64, Failure> {
    if let Ok(seconds) = text.parse::<f64>()
        && (0.0..1e12).contains(&seconds)
    {
        return Ok((seconds * 1e6) as u64);
    }
    let wrong = |cause: &dyn std::fmt::Display| {
        Failure::new(format!("{text:?} is not a time ({cause}): write 2027-01-31T23:59:59Z, or seconds since 1970"))
    };
    let time = humantime::parse_rfc3339_weak(text).map_err(|cause| wrong(&cause))?;
    let since = time.duration_since(UNIX_EPOCH).map_err(|cause| wrong(&cause))?;
    u64::try_from(since.as_micros()).map_err(|cause| wrong(&cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_can_be_written_in_three_ways() {
        assert_eq!(time("1800000000").unwrap(), 1_800_000_000_000_000);
        assert_eq!(time("1800000000.25").unwrap(), 1_800_000_000_250_000);
        assert_eq!(time("2027-01-15T08:00:00Z").unwrap(), 1_800_000_000_000_000);
        assert_eq!(time("2027-01-15 08:00:00.5").unwrap(), 1_800_000_000_500_000);
        for nonsense in ["", "soon", "-5", "NaN", "2027-13-01T00:00:00Z"] {
            assert!(time(nonsense).is_err(), "{nonsense}");
        }
    }
}
