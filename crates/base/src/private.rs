//! Private files: what holds data is for its owner alone. Files have mode 0600 and directories
//! 0700, whatever the umask of the process.
//!
//! What this module makes is private from the first moment. What is already there is
//! [checked](check) before anything in it is changed.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};
use thiserror::Error;

/// The mode of files.
const FILE: u32 = 0o600;
/// The mode of directories.
const DIRECTORY: u32 = 0o700;
/// What the group and others may do.
const OTHERS: u32 = 0o077;

/// Opens a file and makes it private, even if it was there and was not private.
///
/// # Errors
/// When it cannot be opened, or cannot be made private.
pub fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.mode(FILE).open(path)?;
    keep(&file)?;
    Ok(file)
}

/// Makes an open file private.
///
/// # Errors
/// When it is another user's.
pub fn keep(file: &File) -> io::Result<()> {
    if file.metadata()?.mode() & OTHERS == 0 {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(FILE))
}

/// Makes an empty file and opens it for writing, in the place of one that was there.
///
/// # Errors
/// As [`open`].
pub fn create(path: &Path) -> io::Result<File> {
    open(OpenOptions::new().write(true).create(true).truncate(true), path)
}

/// Writes a file, in the place of one that was there. Not durable.
///
/// # Errors
/// As [`open`], or when not all could be written.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    create(path)?.write_all(bytes)
}

/// Writes a file in the place of one that was there. It is durable when this returns, and at every
/// moment one of the two is there, whole: `unfinished`, in the same directory, is written, synced
/// and renamed, and the directory is synced. Blocks until that is done.
///
/// # Errors
/// As [`write`], or when it cannot be synced or renamed; the one that was there may be replaced
/// then.
pub fn replace(file: &Path, unfinished: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new = create(unfinished)?;
    new.write_all(bytes)?;
    new.sync_all()?;
    fs::rename(unfinished, file)?;
    directory_of(file)?.sync_all()
}

/// Opens the directory that has the name of a file, to sync it.
///
/// # Errors
/// When it cannot be opened.
pub fn directory_of(file: &Path) -> io::Result<File> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))
}

/// As [`replace`], in a way that needs no room once it has been done twice: what was there before
/// stays beside `file` as `spare`, and is written over the next time. Blocks likewise.
///
/// # Errors
/// As [`replace`].
pub fn exchange(file: &Path, spare: &Path, bytes: &[u8]) -> io::Result<()> {
    if !file.try_exists()? {
        return replace(file, spare, bytes);
    }
    let directory = directory_of(file)?;
    // Until the last exchange is durable, the spare may be what a loss of power leaves as the file.
    directory.sync_all()?;
    let mut new = open(OpenOptions::new().write(true).create(true).truncate(false), spare)?;
    new.write_all(bytes)?;
    new.set_len(bytes.len() as u64)?;
    new.sync_all()?;
    match renameat_with(CWD, spare, CWD, file, RenameFlags::EXCHANGE) {
        // A file system that cannot: then there is no spare.
        Err(Errno::INVAL | Errno::NOSYS) => fs::rename(spare, file)?,
        exchanged => exchanged?,
    }
    directory.sync_all()
}

/// Makes a directory.
///
/// # Errors
/// When it cannot be made, or is there.
pub fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY).create(path)
}

/// Makes a directory and those above it that are missing. One that is there stays as it is.
///
/// # Errors
/// When one cannot be made.
pub fn create_directories(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY).recursive(true).create(path)
}

/// Makes an existing directory private: for an empty one that was made for this process.
///
/// # Errors
/// When it is another user's.
pub fn keep_directory(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.mode() & OTHERS == 0 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(DIRECTORY))
}

/// Why a file or a directory that is there is not used.
#[derive(Debug, Error)]
pub enum NotPrivate {
    /// Others may go into the directory.
    #[error(
        "other users can read or enter {directory}, which holds data (its mode is {mode:04o}): `chmod 700 {quoted}` fixes that; \
         nothing was changed",
        directory = .directory.display(), quoted = quoted(.directory)
    )]
    Directory {
        /// The directory that is open to others.
        directory: PathBuf,
        /// What may be done with it, by whom.
        mode: u32,
    },
    /// Others may read a file in the directory, as it was made by an older version, or copied.
    #[error(
        "other users can read or write {file}, which may hold data (its mode is {mode:04o}): `chmod -R go= {quoted}` fixes that; \
         nothing was changed",
        file = .file.display(), quoted = quoted(.below)
    )]
    Below {
        /// The directory that was looked at.
        below: PathBuf,
        /// The file in it, or further below.
        file: PathBuf,
        /// What may be done with it, by whom.
        mode: u32,
    },
    /// Others may read the file.
    #[error(
        "other users can read or write {file}, which may hold data (its mode is {mode:04o}): `chmod 600 {quoted}` fixes that; \
         nothing was changed",
        file = .file.display(), quoted = quoted(.file)
    )]
    File {
        /// The file that is open to others.
        file: PathBuf,
        /// What may be done with it, by whom.
        mode: u32,
    },
    /// It belongs to another user.
    #[error(
        "{path} belongs to user {owner}, and this process runs as user {ours}: run it as user {owner}, or `chown -R {ours} {quoted}`; \
         nothing was changed",
        path = .path.display(), quoted = quoted(.path)
    )]
    Owner {
        /// The file or directory that another user owns.
        path: PathBuf,
        /// The number of the user that it belongs to.
        owner: u32,
        /// The number of the user that this process runs as.
        ours: u32,
    },
    /// The operating system refused something.
    #[error("cannot look at {path}: {source}; check the permissions", path = .path.display())]
    Io {
        /// The file or directory that could not be looked at.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

fn our_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn owned(path: &Path, found: &Metadata) -> Result<(), NotPrivate> {
    match (found.uid(), our_user()) {
        (owner, ours) if owner == ours => Ok(()),
        (owner, ours) => Err(NotPrivate::Owner { path: path.to_owned(), owner, ours }),
    }
}

/// What is there, if there is something.
fn look(path: &Path, ask: fn(&Path) -> io::Result<Metadata>) -> Result<Option<Metadata>, NotPrivate> {
    match ask(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(NotPrivate::Io { path: path.to_owned(), source }),
    }
}

/// Whether a directory is this user's, and so can be [made private](keep_directory). A missing one
/// can be made.
///
/// # Errors
/// [`NotPrivate::Owner`], [`NotPrivate::Io`].
pub fn check_owner(directory: &Path) -> Result<(), NotPrivate> {
    look(directory, |path| fs::metadata(path))?.map_or(Ok(()), |found| owned(directory, &found))
}

/// Whether a directory that holds data is this user's alone, and so is every file in it and below.
/// A missing directory counts as private. Symbolic links are not followed; `lost+found` is skipped.
/// Changes nothing.
///
/// # Errors
/// [`NotPrivate`] names the first that is not.
pub fn check(directory: &Path) -> Result<(), NotPrivate> {
    let Some(found) = look(directory, |path| fs::metadata(path))?.filter(Metadata::is_dir) else { return Ok(()) };
    owned(directory, &found)?;
    // First, since the command that mends a file mends the directory too.
    check_below(directory, directory)?;
    let mode = found.mode() & 0o7777;
    if mode & OTHERS == 0 { Ok(()) } else { Err(NotPrivate::Directory { directory: directory.to_owned(), mode }) }
}

fn check_below(top: &Path, directory: &Path) -> Result<(), NotPrivate> {
    let failed = |source| NotPrivate::Io { path: directory.to_owned(), source };
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name() == "lost+found" {
            continue;
        }
        let path = entry.path();
        // A process that is ending, or another command, may take it away.
        let Some(found) = look(&path, |path| fs::symlink_metadata(path))? else { continue };
        let (kind, mode) = (found.file_type(), found.mode() & 0o7777);
        if kind.is_dir() {
            check_below(top, &path)?;
        } else if kind.is_file() && mode & OTHERS != 0 {
            return Err(NotPrivate::Below { below: top.to_owned(), file: path, mode });
        }
    }
    Ok(())
}

/// Whether a file that holds data is this user's alone. A missing or empty file can be [made
/// private](keep). Changes nothing.
///
/// # Errors
/// [`NotPrivate::File`], [`NotPrivate::Owner`], [`NotPrivate::Io`].
pub fn check_file(file: &Path) -> Result<(), NotPrivate> {
    let Some(found) = look(file, |path| fs::metadata(path))? else { return Ok(()) };
    owned(file, &found)?;
    let mode = found.mode() & 0o7777;
    if mode & OTHERS == 0 || found.len() == 0 { Ok(()) } else { Err(NotPrivate::File { file: file.to_owned(), mode }) }
}

/// Why a private key is not used. The words are PostgreSQL's.
#[derive(Debug, Error)]
pub enum OpenKey {
    /// It is a directory, or the like.
    #[error("private key file \"{}\" is not a regular file", .0.display())]
    NoFile(PathBuf),
    /// It is some other user's.
    #[error("private key file \"{}\" must be owned by the database user or root", .0.display())]
    Owner(PathBuf),
    /// Its group, or others, can read or write it.
    #[error(
        "private key file \"{}\" has group or world access. File must have permissions u=rw (0600) or less if owned by the database \
         user, or permissions u=rw,g=r (0640) or less if owned by root.",
        .0.display()
    )]
    Access(PathBuf),
    /// The operating system refused something.
    #[error("could not access private key file \"{}\": {source}", .path.display())]
    Io {
        /// The key file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Whether a private key is kept as PostgreSQL wants it: owned by this user and readable for it
/// alone, or owned by root and readable for a group.
///
/// # Errors
/// [`OpenKey`].
pub fn check_key(path: &Path) -> Result<(), OpenKey> {
    let found = fs::metadata(path).map_err(|source| OpenKey::Io { path: path.to_owned(), source })?;
    if !found.is_file() {
        return Err(OpenKey::NoFile(path.to_owned()));
    }
    let more_than_may_be = match found.uid() {
        0 => OTHERS & !0o040,
        owner if owner == our_user() => OTHERS,
        _ => return Err(OpenKey::Owner(path.to_owned())),
    };
    if found.mode() & more_than_may_be == 0 { Ok(()) } else { Err(OpenKey::Access(path.to_owned())) }
}

/// Sets the umask, so that nothing that this process makes from now on is for others. The modes
/// that this module gives do not depend on it.
pub fn umask() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(OTHERS));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A directory that is removed after the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("freshet-private-{name}-{}", std::process::id()));
            create_directory(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// No block of a file is made or freed once both are there.
    #[test]
    fn two_files_take_turns() {
        let scratch = Scratch::new("turns");
        let [file, spare] = ["file", "spare"].map(|name| scratch.0.join(name));
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        exchange(&file, &spare, b"first").unwrap();
        assert!(!spare.exists());
        let first = inode(&file);
        exchange(&file, &spare, b"second, and longer").unwrap();
        let second = inode(&file);
        assert_eq!((inode(&spare), fs::read(&spare).unwrap()), (first, b"first".to_vec()));
        for (number, text) in ["third", "fourth is the longest of all", "fifth"].into_iter().enumerate() {
            exchange(&file, &spare, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
            let [is, was] = if number % 2 == 0 { [first, second] } else { [second, first] };
            assert_eq!((inode(&file), inode(&spare), mode(&file)), (is, was, FILE));
        }
    }

    #[test]
    fn what_is_made_is_private() {
        let scratch = Scratch::new("made");
        let (file, folder) = (scratch.0.join("file"), scratch.0.join("a/b"));
        write(&file, b"data").unwrap();
        create_directories(&folder).unwrap();
        assert_eq!((mode(&file), mode(&folder), mode(&scratch.0.join("a"))), (0o600, 0o700, 0o700));
        // Also in place of a file that was not private.
        set(&file, 0o644);
        set(&folder, 0o755);
        write(&file, b"more").unwrap();
        keep_directory(&folder).unwrap();
        assert_eq!((mode(&file), mode(&folder)), (0o600, 0o700));
    }

    #[test]
    fn what_others_can_read_is_refused_with_the_command_that_mends_it() {
        let scratch = Scratch::new("check it's");
        let folder = scratch.0.join("below");
        let file = folder.join("file");
        create_directory(&folder).unwrap();
        write(&file, b"data").unwrap();
        check(&scratch.0).unwrap();
        check(&scratch.0.join("nothing")).unwrap();
        let refusal = || check(&scratch.0).unwrap_err().to_string();
        for bad in [0o640, 0o604, 0o620, 0o601] {
            set(&file, bad);
            assert!(refusal().contains(&format!("`chmod -R go= '{}", scratch.0.display()).replace("it's", "it'\\''s")));
            let shown = refusal();
            assert!(shown.contains(file.to_str().unwrap()) && shown.contains(&format!("{bad:04o}")), "{shown}");
            assert!(check_file(&file).unwrap_err().to_string().contains("`chmod 600 "));
        }
        set(&file, 0o600);
        check_file(&file).unwrap();
        for bad in [0o750, 0o705, 0o711, 0o770] {
            set(&scratch.0, bad);
            assert!(refusal().contains("`chmod 700 ") && refusal().contains(&format!("{bad:04o}")), "{}", refusal());
        }
        // What the command says is done.
        let command = check(&scratch.0).unwrap_err().to_string();
        let command = command.split('`').nth(1).unwrap();
        assert!(std::process::Command::new("/bin/sh").args(["-c", command]).status().unwrap().success());
        check(&scratch.0).unwrap();
        // No other user comes through the directory above.
        set(&folder, 0o755);
        check(&scratch.0).unwrap();
    }

    #[test]
    fn keys_are_kept_as_postgresql_wants_them() {
        let scratch = Scratch::new("key");
        let key = scratch.0.join("key.pem");
        write(&key, b"key").unwrap();
        let root = our_user() == 0;
        for (given, good) in
            [(0o600, true), (0o400, true), (0o640, root), (0o644, false), (0o660, false), (0o601, false)]
        {
            set(&key, given);
            match check_key(&key) {
                Ok(()) => assert!(good, "{given:o}"),
                Err(OpenKey::Access(_)) => assert!(!good, "{given:o}"),
                Err(other) => panic!("{other}"),
            }
        }
        assert!(matches!(check_key(&scratch.0), Err(OpenKey::NoFile(_))));
        assert!(matches!(check_key(&scratch.0.join("none")), Err(OpenKey::Io { .. })));
    }
}
