//! Where a server keeps the Unix sockets that programs of the same user connect to.
//!
//! Server and client find the directory in the same way, so it need not be configured. It belongs
//! to the user who runs the server, and no other user can enter it: a client that connects through
//! it is that user, or root.

use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{fs::OFlags, process::geteuid};

/// The directory for Unix sockets of this user's servers: `$XDG_RUNTIME_DIR/freshet` where that
/// variable is set, else `/tmp/freshet-<uid>`; where another user has taken that name, the first of
/// `/tmp/freshet-<uid>-1` to `-7` that is free or this user's. It is made with mode 0700 where it
/// is missing.
///
/// # Errors
/// When it cannot be made, or when it is not a directory of this user that is closed to all others.
/// The message says what to do.
pub fn run_directory() -> io::Result<PathBuf> {
    let path = path(env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from), geteuid().as_raw());
    let shared = path.parent() == Some(Path::new("/tmp"));
    first_of(&path, if shared { OTHER_NAMES } else { 0 }, geteuid().as_raw())
}

/// How many names there are besides the first, in a directory where others may take that.
const OTHER_NAMES: u32 = 7;

/// The first that is free, or this user's. Only what another user has is passed over.
fn first_of(path: &Path, others: u32, uid: u32) -> io::Result<PathBuf> {
    let refused = match prepare(path, uid) {
        Ok(()) => return Ok(path.to_owned()),
        Err(refused) => refused,
    };
    for number in 1..=others {
        let before = if number == 1 { path.to_owned() } else { numbered(path, number - 1) };
        if fs::symlink_metadata(&before).is_ok_and(|found| found.uid() == uid) {
            break;
        }
        let next = numbered(path, number);
        if prepare(&next, uid).is_ok() {
            return Ok(next);
        }
    }
    Err(refused)
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!("-{number}"));
    name.into()
}

fn path(runtime: Option<PathBuf>, uid: u32) -> PathBuf {
    match runtime {
        // A relative path counts as unset, by the XDG base directory specification.
        Some(runtime) if runtime.is_absolute() => runtime.join("freshet"),
        _ => PathBuf::from(format!("/tmp/freshet-{uid}")),
    }
}

/// Makes the directory if it is missing, and makes sure that it is private.
fn prepare(path: &Path, uid: u32) -> io::Result<()> {
    let refused = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
    let shown = path.display();
    match DirBuilder::new().mode(0o700).create(path) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => {
            let why = format!(
                "cannot make {shown}, the directory for sockets: {cause}; have XDG_RUNTIME_DIR name a directory of \
                 this user, or unset it"
            );
            return Err(io::Error::new(cause.kind(), why));
        }
        _ => {}
    }
    let open = |path: &Path| -> io::Result<File> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
        OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
    };
    // Checks the directory that was opened, not whatever has the name by now.
    let opened = open(path).map_err(|cause| {
        let why = format!("{shown} has to be a directory of this user, for sockets: {cause}; remove what is there");
        io::Error::new(cause.kind(), why)
    })?;
    let found = opened.metadata()?;
    if found.uid() != uid {
        let owner = found.uid();
        return Err(refused(format!(
            "{shown}, the directory for sockets, belongs to user {owner} and not to user {uid}: have its owner remove \
             it, or have XDG_RUNTIME_DIR name another directory"
        )));
    }
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(refused(format!(
            "{shown}, the directory for sockets, is open to others (mode {mode:03o}): chmod 0700 {shown}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs::Permissions,
        os::unix::fs::{PermissionsExt, symlink},
        sync::atomic::{AtomicU32, Ordering},
    };

    use super::*;

    /// A test's own directory, removed when this is dropped.
    struct Place(PathBuf);

    impl Place {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let number = COUNT.fetch_add(1, Ordering::SeqCst);
            let path = env::temp_dir().join(format!("freshet-run-{}-{number}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn own() -> u32 {
        geteuid().as_raw()
    }

    #[test]
    fn it_is_that_of_the_user() {
        assert_eq!(path(Some("/run/user/7".into()), 7), Path::new("/run/user/7/freshet"));
        assert_eq!(path(None, 7), Path::new("/tmp/freshet-7"));
        assert_eq!(path(Some("run".into()), 7), Path::new("/tmp/freshet-7"));
        assert_eq!(path(Some("".into()), 7), Path::new("/tmp/freshet-7"));
    }

    #[test]
    fn it_is_made_private_and_taken_again() {
        let place = Place::new();
        let path = place.0.join("run");
        prepare(&path, own()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        prepare(&path, own()).unwrap();
    }

    #[test]
    fn what_others_can_enter_is_refused_with_the_remedy() {
        let place = Place::new();
        for mode in [0o755, 0o710, 0o701, 0o777] {
            fs::set_permissions(&place.0, Permissions::from_mode(mode)).unwrap();
            let refused = prepare(&place.0, own()).unwrap_err().to_string();
            assert!(refused.contains(&format!("mode {mode:o}")) && refused.contains("chmod 0700"), "{refused}");
        }
    }

    #[test]
    fn the_directory_of_another_user_is_refused() {
        let place = Place::new();
        fs::set_permissions(&place.0, Permissions::from_mode(0o700)).unwrap();
        let refused = prepare(&place.0, own() + 1).unwrap_err().to_string();
        assert!(refused.contains("belongs to user"), "{refused}");
    }

    #[test]
    fn what_another_user_has_taken_is_passed_over() {
        let place = Place::new();
        let path = place.0.join("freshet-7");
        // What is made here is a stranger's to a user with another number.
        prepare(&path, own()).unwrap();
        let stranger = own() + 1;
        assert_eq!(first_of(&path, 0, own()).unwrap(), path);
        assert!(first_of(&path, 7, stranger).unwrap_err().to_string().contains("belongs to user"));
        assert!(numbered(&path, 7).is_dir());
        // A file is taken for a name, too; what is one's own and open to others is said.
        let path = place.0.join("freshet-8");
        fs::write(&path, "").unwrap();
        assert!(first_of(&path, 7, own()).unwrap_err().to_string().contains("has to be a directory"));
        let path = place.0.join("freshet-9");
        prepare(&path, own()).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        assert!(first_of(&path, 7, own()).unwrap_err().to_string().contains("chmod 0700"));
        assert!(!numbered(&path, 1).exists());
    }

    #[test]
    fn a_link_or_a_file_is_refused() {
        let place = Place::new();
        let (real, link, file) = (place.0.join("real"), place.0.join("link"), place.0.join("file"));
        prepare(&real, own()).unwrap();
        symlink(&real, &link).unwrap();
        fs::write(&file, "").unwrap();
        for path in [link, file] {
            let refused = prepare(&path, own()).unwrap_err().to_string();
            assert!(refused.contains("has to be a directory"), "{refused}");
        }
    }

    #[test]
    fn what_keeps_it_from_being_made_is_named() {
        let place = Place::new();
        let refused = prepare(&place.0.join("missing/run"), own()).unwrap_err().to_string();
        assert!(refused.contains("XDG_RUNTIME_DIR"), "{refused}");
    }
}
