//! The Unix socket that clients of the same machine connect to, as PostgreSQL names it.

use std::{
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{fs::OFlags, net::sockopt::socket_peercred, process::geteuid};

/// How long another server may take to make its socket in the same directory.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The path of a server's socket; clients derive it from the port.
pub(crate) fn socket_path(directory: &Path, port: u16) -> PathBuf {
    directory.join(format!(".s.PGSQL.{port}"))
}

/// A socket that was made here. Its file is removed when this is dropped. Drop this before the
/// listener: while the listener is open, no other file can have the same number.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    directory: PathBuf,
    /// Which file it is: device and number.
    made: (u64, u64),
}

impl SocketFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Listens at the socket for this port in the directory. Removes the socket of a server that does
/// not run any more.
pub(crate) fn listen(directory: &Path, port: u16) -> io::Result<(UnixListener, SocketFile)> {
    let path = socket_path(directory, port);
    let _lock = lock(directory)?;
    remove_stale(&path)?;
    let listener = UnixListener::bind(&path)?;
    // As in PostgreSQL: the mode of the directory says who may connect.
    fs::set_permissions(&path, Permissions::from_mode(0o777))?;
    let made = identity(&path)?;
    Ok((listener, SocketFile { path, directory: directory.to_owned(), made }))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Keeps other servers from making or removing sockets in the directory while this is held.
fn lock(directory: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY.bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(directory)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match opened.try_lock() {
            Ok(()) => return Ok(opened),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
            Err(TryLockError::WouldBlock) => {
                let why = format!("another process holds a lock on {}", directory.display());
                return Err(io::Error::new(io::ErrorKind::WouldBlock, why));
            }
            Err(TryLockError::Error(cause)) => return Err(cause),
        }
    }
}

/// Removes a socket that has no listener. Does not follow links.
fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(cause) => return Err(cause),
    };
    let in_use = |why: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, why));
    if !found.file_type().is_socket() {
        return in_use("there is something else than a socket; remove it, or choose another directory");
    }
    match UnixStream::connect(path) {
        Err(cause) if cause.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        _ => in_use("another server listens there; choose another port or another directory"),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Where another server has taken the name, it keeps it.
        if let Ok(_lock) = lock(&self.directory)
            && identity(&self.path).is_ok_and(|found| found == self.made)
        {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The user who runs this process.
pub(crate) fn own_uid() -> u32 {
    geteuid().as_raw()
}

/// A user's name, from `/etc/passwd`; none for users that only another directory service knows.
pub(crate) fn user_name(uid: u32) -> Option<String> {
    name_in(&fs::read_to_string("/etc/passwd").ok()?, uid)
}

fn name_in(users: &str, uid: u32) -> Option<String> {
    let user = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    };
    users.lines().find_map(user)
}

/// The user at the other end of a Unix socket, as the system knows it.
pub(crate) fn user_of(stream: &UnixStream) -> io::Result<u32> {
    Ok(socket_peercred(stream)?.uid.as_raw())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_socket_is_made_for_all_and_removed_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let (listener, file) = listen(directory.path(), 5432).unwrap();
        assert_eq!(file.path(), directory.path().join(".s.PGSQL.5432"));
        assert_eq!(fs::metadata(file.path()).unwrap().mode() & 0o777, 0o777);
        let client = UnixStream::connect(file.path()).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(user_of(&server).unwrap(), rustix::process::geteuid().as_raw());
        assert_eq!(user_of(&client).unwrap(), rustix::process::geteuid().as_raw());
        drop(file);
        assert!(!directory.path().join(".s.PGSQL.5432").exists());
    }

    #[test]
    fn a_socket_that_nobody_listens_at_is_replaced_and_one_in_use_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let (listener, file) = listen(directory.path(), 7).unwrap();
        let refused = listen(directory.path(), 7).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        assert!(refused.to_string().contains("another server listens there"), "{refused}");
        // As after a crash: the file stays.
        std::mem::forget(file);
        drop(listener);
        let (_listener, file) = listen(directory.path(), 7).unwrap();
        drop(file);
    }

    #[test]
    fn links_and_files_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (at, file) = (socket_path(directory.path(), 1), directory.path().join("file"));
        fs::write(&file, "kept").unwrap();
        symlink(&file, &at).unwrap();
        assert!(listen(directory.path(), 1).unwrap_err().to_string().contains("something else than a socket"));
        assert_eq!(fs::read(&file).unwrap(), b"kept");
        fs::remove_file(&at).unwrap();
        // Even where the link leads to a stale socket.
        let (listener, socket) = listen(directory.path(), 2).unwrap();
        std::mem::forget(socket);
        drop(listener);
        symlink(socket_path(directory.path(), 2), &at).unwrap();
        assert!(listen(directory.path(), 1).unwrap_err().to_string().contains("something else than a socket"));
    }

    #[test]
    fn users_have_names() {
        let users = "root:x:0:0::/root:/bin/sh\n:x:5:5::/:\nann:x:1000:1000:Ann:/home/ann:/bin/sh\nbroken\n";
        assert_eq!(name_in(users, 1000).as_deref(), Some("ann"));
        assert_eq!(name_in(users, 0).as_deref(), Some("root"));
        assert_eq!((name_in(users, 5), name_in(users, 7)), (None, None));
        assert_eq!(user_name(0).as_deref(), Some("root"));
    }

    #[test]
    fn the_socket_of_another_server_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (_first_listens, first) = listen(directory.path(), 3).unwrap();
        fs::remove_file(first.path()).unwrap();
        let (_listener, second) = listen(directory.path(), 3).unwrap();
        drop(first);
        assert!(second.path().exists());
    }
}
