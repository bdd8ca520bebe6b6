//! A standby begins again: what it has is moved aside whole, and it joins with nothing, under its
//! own id and with its own certificate.
//!
//! | when | what is done | what says so on disk |
//! |---|---|---|
//! | it is to begin again | the node stops | `begin-again` in its directory |
//! | it starts | its directories are renamed, the node's own last | `begun-again` in the new directory |
//! | its new state was found equal to its primary's | the old directories are removed | nothing |
//!
//! A crash between any two of these steps is followed by the next one. Until the last, nothing is
//! removed: a directory that is moved back is as it was.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

use freshet_base::{Lsn, NodeId, Term, private};
use freshet_log::{Control, LogDirectory};
use freshet_membership::{Credentials, Files};
use freshet_replication::{
    endpoint::{CallError, call},
    status::LinkStatus,
    wire::{Hello, Purpose, Refusal, Reply, Verdict},
};

use super::{
    Node,
    adapters::remembered_nodes,
    config::{Domain, NodeConfig},
    start::PATIENCE,
};

/// The node is to begin again: whom it joins, and the number of what is moved aside.
const WANTED: &str = "begin-again";
/// It has begun again, and its new state is not proved: whom it joins, and where its old
/// directories are.
const BEGUN: &str = "begun-again";
/// What is moved aside is called so, with a number.
const ASIDE: &str = ".in-doubt-";
/// The new directory, before it has its name.
const BEGINNING: &str = ".beginning";

/// A node that has begun again, and whose new state is not proved yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Whom it joins: its primary; if that cannot be, another node that it knew, in turn.
    pub join: Vec<String>,
    /// Where what it had before is.
    pub aside: Vec<PathBuf>,
}

impl Begun {
    /// What the directory of a node says of that.
    ///
    /// # Errors
    /// What the system says.
    pub fn read(directory: &Path) -> io::Result<Option<Self>> {
        let Some(mut lines) = read_lines(&directory.join(BEGUN))? else { return Ok(None) };
        let join = lines.next().unwrap_or_default().to_string_lossy().split(' ').map(str::to_owned).collect();
        Ok(Some(Self { join, aside: lines.map(PathBuf::from).collect() }))
    }

    /// The first of those that it may join did not let it: the next time it is another's turn.
    ///
    /// # Errors
    /// What the system says.
    pub fn join_next(&self, directory: &Path) -> io::Result<()> {
        let mut next = self.clone();
        next.join.rotate_left(1.min(self.join.len()));
        next.write(directory)
    }

    /// The new state is proved: removes what was moved aside.
    ///
    /// # Errors
    /// What the system says; it can be tried again.
    pub fn finish(&self, directory: &Path) -> io::Result<()> {
        let is_aside = |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains(ASIDE));
        for path in self.aside.iter().filter(is_aside) {
            let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
            match removed {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
                _ => {}
            }
        }
        fs::remove_file(directory.join(BEGUN))?;
        sync(directory)
    }

    fn write(&self, directory: &Path) -> io::Result<()> {
        let paths = self.aside.iter().map(|path| path.as_os_str());
        write_lines(directory, BEGUN, [OsStr::new(&self.join.join(" "))].into_iter().chain(paths))
    }
}

fn read_lines(path: &Path) -> io::Result<Option<impl Iterator<Item = OsString> + use<>>> {
    let text = match fs::read(path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let lines: Vec<_> = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
    Ok(Some(lines.into_iter().map(OsString::from_vec)))
}

/// Durable when this returns; whole, or not there.
fn write_lines<'l>(directory: &Path, name: &str, lines: impl Iterator<Item = &'l OsStr>) -> io::Result<()> {
    let mut text = Vec::new();
    for line in lines {
        if line.as_bytes().contains(&b'\n') {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("the name {line:?} has two lines")));
        }
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    }
    private::replace(&directory.join(name), &directory.join(format!("{name}.new")), &text)
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn rename(from: &Path, to: &Path) -> Result<(), String> {
    let parent = from.parent().unwrap_or(Path::new("/"));
    let renamed = fs::rename(from, to).and_then(|()| sync(parent));
    renamed.map_err(|cause| format!("cannot rename {} to {}: {cause}", from.display(), to.display()))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// What a node keeps, and where: its directory, and what is not in that.
fn places(config: &NodeConfig) -> io::Result<(Vec<PathBuf>, PathBuf)> {
    let directory = real(&config.directory)?;
    let elsewhere = config.log.dir.iter().cloned().chain(config.named_checkpoint_devices());
    let elsewhere = elsewhere.chain([config.buffer_file()]).map(|place| real(&place)).collect::<Result<Vec<_>, _>>()?;
    let elsewhere = elsewhere.into_iter().filter(|place| !place.starts_with(&directory));
    Ok((elsewhere.collect(), directory))
}

/// Where a link leads, whether there is something or not: the new one is to be on the same device.
fn real(path: &Path) -> io::Result<PathBuf> {
    // Without a slash at the end, behind which a link would be followed.
    let mut path: PathBuf = std::path::absolute(path)?.components().collect();
    for _ in 0..16 {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("/")).join(target).components().collect(),
            Err(_) => break,
        }
    }
    Ok(path)
}

/// Whether the directories of a node can be moved aside, as far as that can be seen before.
///
/// # Errors
/// What stands against it.
pub fn check(config: &NodeConfig) -> io::Result<()> {
    let (elsewhere, directory) = places(config)?;
    for place in elsewhere.iter().chain([&directory]).filter(|place| place.exists()) {
        let failed = |cause: io::Error| io::Error::new(cause.kind(), format!("{}: {cause}", place.display()));
        let (beside, parent) = (with_suffix(place, BEGINNING), place.parent().unwrap_or(Path::new("/")));
        private::create_directory(&beside).and_then(|()| fs::remove_dir(&beside)).map_err(failed)?;
        if fs::metadata(place)?.dev() != fs::metadata(parent)?.dev() {
            return Err(failed(io::Error::other("a file system is mounted there: use a directory in that")));
        }
    }
    Ok(())
}

/// Notes that the node with this configuration, which has stopped, is to begin again when it starts
/// next, by joining the node at `join`.
///
/// # Errors
/// What the system says; it starts as it was then.
pub fn want(config: &NodeConfig, join: &str) -> io::Result<()> {
    let (elsewhere, directory) = places(config)?;
    let is_free = |number: &u32| {
        let suffix = format!("{ASIDE}{number}");
        elsewhere.iter().chain([&directory]).all(|place| !with_suffix(place, &suffix).exists())
    };
    let number = (1..).find(is_free).unwrap_or_default().to_string();
    write_lines(&directory, WANTED, [OsStr::new(join), OsStr::new(&number)].into_iter())
}

/// To be called before a node starts: moves aside what it has, if it is to begin again. Of a node
/// that has done so, and whose new state is not proved, says how; it is to join that node.
///
/// # Errors
/// What stands against it; nothing has changed then, or it is in the way of a start.
pub fn carry_out(config: &NodeConfig) -> Result<Option<Begun>, String> {
    if config.domain == Domain::None {
        return Ok(None);
    }
    let system = |cause: io::Error| cause.to_string();
    let (elsewhere, directory) = places(config).map_err(system)?;
    let fresh = with_suffix(&directory, BEGINNING);
    if !directory.exists() && fresh.join(BEGUN).exists() {
        rename(&fresh, &directory)?;
    }
    if let Some(mut lines) = read_lines(&directory.join(WANTED)).map_err(system)? {
        let wanted = |line: Option<OsString>| line.map(|line| line.to_string_lossy().into_owned()).unwrap_or_default();
        let (join, number) = (wanted(lines.next()), wanted(lines.next()));
        let suffix = format!("{ASIDE}{number}");
        if let Err(cause) = move_aside(config, &elsewhere, &directory, &join, &suffix) {
            tracing::error!(cause, "this node cannot begin again, and starts with what it has");
            let back = |place: &PathBuf| {
                let aside = with_suffix(place, &suffix);
                if aside.exists() && !place.exists() { rename(&aside, place) } else { Ok(()) }
            };
            elsewhere.iter().chain([&directory]).try_for_each(back)?;
            let _ = fs::remove_dir_all(&fresh);
            fs::remove_file(directory.join(WANTED)).map_err(system)?;
        }
    }
    let begun = Begun::read(&directory).map_err(system)?;
    // Moved back, it is to be as it was.
    if let Some(own) = begun.as_ref().and_then(|begun| begun.aside.last()) {
        let _ = fs::remove_file(own.join(WANTED));
    }
    Ok(begun)
}

fn move_aside(
    config: &NodeConfig,
    elsewhere: &[PathBuf],
    directory: &Path,
    join: &str,
    suffix: &str,
) -> Result<(), String> {
    let (aside, fresh) = (|place: &Path| with_suffix(place, suffix), with_suffix(directory, BEGINNING));
    let old = LogDirectory::open(directory).map_err(|cause| cause.to_string())?;
    let Control { cluster, node, latest_term, .. } = old.control();
    let mut moved: Vec<_> =
        Begun::read(directory).map_err(|cause| cause.to_string())?.into_iter().flat_map(|it| it.aside).collect();
    for place in elsewhere {
        // It was moved before a crash, or there is nothing.
        if !aside(place).exists() && place.exists() {
            rename(place, &aside(place))?;
        }
        if aside(place).exists() {
            moved.push(aside(place));
        }
    }
    moved.push(aside(directory));
    // What an attempt before has left, in which there is no log.
    match fs::remove_dir_all(&fresh) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(format!("{}: {cause}", fresh.display())),
        _ => {}
    }
    // What it has observed of terms it does not forget.
    let control = Control::new(cluster, node, config.log.segment_bytes, config.log.stream_count());
    let control = Control { latest_term, joins: true, ..control };
    LogDirectory::create(&fresh, control).map_err(|cause| cause.to_string())?;
    if !config.member.is_brought() {
        let own = Credentials::read(&Files::in_directory(directory), cluster).map_err(|cause| cause.to_string())?;
        own.write(&fresh).map_err(|cause| cause.to_string())?;
    }
    let mut others = config.peers.iter().cloned().chain(remembered_nodes(directory)).collect::<Vec<_>>();
    others.retain(|other| other != join);
    let begun = Begun { join: [vec![join.to_owned()], others].concat(), aside: moved };
    begun.write(&fresh).map_err(|cause| format!("{}: {cause}", fresh.display()))?;
    rename(directory, &aside(directory))?;
    rename(&fresh, directory)?;
    let Begun { join, aside } = &begun;
    tracing::warn!(?join, ?aside, "this node begins again; what it had is kept aside until its new state is proved");
    Ok(())
}

impl Node {
    /// Whom it follows as a standby, at this moment, and where that is.
    pub fn follows(&self) -> Option<(NodeId, String)> {
        match self.unless_taking_over()?.standby()?.standby.status().link {
            LinkStatus::Following { node, address } => Some((node, address)),
            _ => None,
        }
    }

    /// Asks the primary whether this standby, whose state is in doubt, may begin again, and where
    /// that primary is. If it may, nothing relies on what this node has any more. None for a node
    /// that follows no other.
    pub fn may_begin_again(&self) -> Option<(NodeId, String, Verdict)> {
        let (node, address) = self.follows()?;
        let since = self.replay.as_deref().and_then(|replay| replay.difference()).map_or(Lsn::ZERO, |it| it.mark);
        let purpose = Purpose::BeginAgain { since };
        let hello = Hello { cluster: Some(self.cluster), node: self.id, address: String::new(), purpose };
        let verdict = match call(&self.credentials, &address, &hello, Term(0), PATIENCE) {
            Ok((Reply::Verdict(verdict), _)) => verdict,
            Ok(_) => Verdict::Wait(CallError::Unexpected { address: address.clone() }.to_string()),
            Err(CallError::Refused { refusal: Refusal::NotPrimary { .. }, .. }) => {
                Verdict::Operator("it follows a relay, which does not know of all standbys".into())
            }
            Err(cause) => Verdict::Wait(cause.to_string()),
        };
        Some((node, address, verdict))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(root: &Path) -> NodeConfig {
        let mut config = NodeConfig {
            directory: root.join("node"),
            listen: ([127, 0, 0, 1], 0).into(),
            new_cluster: true,
            ..NodeConfig::default()
        };
        config.log.dir = vec![root.join("log")];
        config.log.segment_bytes = 1 << 20;
        config.log.buffer_bytes = 1 << 20;
        config
    }

    #[test]
    fn a_link_is_not_moved_but_what_it_leads_to() {
        let root = tempfile::tempdir().unwrap();
        let (config, _) = made(root.path());
        let device = root.path().join("device");
        fs::create_dir(&device).unwrap();
        fs::rename(root.path().join("node"), device.join("real")).unwrap();
        std::os::unix::fs::symlink("device/real", root.path().join("node")).unwrap();
        let config = NodeConfig { directory: root.path().join("node/"), ..config };
        check(&config).unwrap();
        want(&config, "somewhere:1").unwrap();
        let begun = carry_out(&config).unwrap().unwrap();
        assert_eq!(names(&device), ["real", "real.in-doubt-1"], "{begun:?}");
        assert_eq!(names(root.path()), ["device", "log.in-doubt-1", "node"]);
        assert!(LogDirectory::open(&config.directory).unwrap().control().joins);
    }

    #[test]
    fn what_cannot_be_renamed_is_found_before() {
        let root = tempfile::tempdir().unwrap();
        let (config, _) = made(root.path());
        check(&config).unwrap();
        // Something has the name already.
        fs::create_dir(root.path().join("log.beginning")).unwrap();
        assert!(check(&config).unwrap_err().to_string().contains("log: "));
    }

    fn names(root: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(root)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    fn made(root: &Path) -> (NodeConfig, NodeId) {
        let config = config(root);
        let node = Node::start(config.clone(), |_| {}).unwrap();
        let id = node.id();
        node.stop().unwrap();
        (config, id)
    }

    #[test]
    fn all_that_a_node_has_is_moved_aside_and_its_name_stays() {
        let root = tempfile::tempdir().unwrap();
        let (config, id) = made(root.path());
        assert_eq!(carry_out(&config).unwrap(), None);
        want(&config, "somewhere:1").unwrap();
        let config = NodeConfig { peers: vec!["other:1".into(), "somewhere:1".into()], ..config };
        let begun = carry_out(&config).unwrap().unwrap();
        assert_eq!(begun.join, ["somewhere:1", "other:1"]);
        begun.join_next(&config.directory).unwrap();
        let begun = Begun::read(&config.directory).unwrap().unwrap();
        assert_eq!(begun.join, ["other:1", "somewhere:1"]);
        assert_eq!(begun.aside, ["log.in-doubt-1", "node.in-doubt-1"].map(|name| root.path().join(name)));
        assert_eq!(names(root.path()), ["log.in-doubt-1", "node", "node.in-doubt-1"]);
        let control = LogDirectory::open(&config.directory).unwrap().control();
        assert_eq!((control.node, control.log, control.joins), (id, None, true));
        assert!(Files::in_directory(&config.directory).exist());
        // The next start finds the same, and so does one that begins again before that is proved.
        assert_eq!(carry_out(&config).unwrap().as_ref(), Some(&begun));
        want(&config, "elsewhere:1").unwrap();
        let again = carry_out(&config).unwrap().unwrap();
        assert_eq!(again.aside.len(), 3, "{again:?}");
        again.finish(&config.directory).unwrap();
        assert_eq!(names(root.path()), ["node"]);
        assert_eq!(carry_out(&config).unwrap(), None);
    }

    #[test]
    fn what_was_moved_aside_can_be_moved_back() {
        let root = tempfile::tempdir().unwrap();
        let (config, id) = made(root.path());
        want(&config, "somewhere:1").unwrap();
        carry_out(&config).unwrap().unwrap();
        fs::remove_dir_all(&config.directory).unwrap();
        for name in ["log", "node"] {
            fs::rename(root.path().join(format!("{name}.in-doubt-1")), root.path().join(name)).unwrap();
        }
        assert_eq!(carry_out(&config).unwrap(), None);
        let node = Node::start(config, |_| {}).unwrap();
        assert_eq!(node.id(), id);
        node.stop().unwrap();
    }

    /// A crash before each of the renames, and behind the last but one.
    #[test]
    fn a_crash_in_between_is_followed_by_the_rest() {
        for step in 0..3 {
            let root = tempfile::tempdir().unwrap();
            let (config, _) = made(root.path());
            want(&config, "somewhere:1").unwrap();
            if step > 0 {
                fs::rename(root.path().join("log"), root.path().join("log.in-doubt-1")).unwrap();
            }
            if step > 1 {
                carry_out(&config).unwrap().unwrap();
                fs::rename(root.path().join("node"), root.path().join("node.beginning")).unwrap();
            }
            let begun = carry_out(&config).unwrap().unwrap();
            assert_eq!((begun.join[0].as_str(), begun.aside.len()), ("somewhere:1", 2), "step {step}");
            assert_eq!(names(root.path()), ["log.in-doubt-1", "node", "node.in-doubt-1"], "step {step}");
        }
    }

    #[test]
    fn where_a_rename_fails_the_node_starts_with_what_it_has() {
        let root = tempfile::tempdir().unwrap();
        let (config, id) = made(root.path());
        want(&config, "somewhere:1").unwrap();
        // In the way of the node's own directory, the last one.
        fs::create_dir_all(root.path().join("node.in-doubt-1").join("other")).unwrap();
        assert_eq!(carry_out(&config).unwrap(), None);
        assert_eq!(carry_out(&config).unwrap(), None);
        let node = Node::start(config, |_| {}).unwrap();
        assert_eq!(node.id(), id);
        node.stop().unwrap();
    }
}
