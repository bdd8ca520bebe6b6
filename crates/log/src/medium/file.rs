//! Files in one directory.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use freshet_base::private;
use rustix::fs::FallocateFlags;

use super::{Medium, MediumFile, with_descriptors};

/// The files of one directory; writes become durable with `fdatasync`.
#[derive(Debug)]
pub struct FileMedium {
    directory: PathBuf,
    read_only: bool,
}

/// What a file is called while it is made.
const UNFINISHED: &str = ".new";

impl FileMedium {
    /// The files in `directory`, which exists.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), read_only: false }
    }

    /// The same for looking only: files are opened in a way that does not allow to write.
    pub fn read_only(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), read_only: true }
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }
}

/// Makes a directory, with those above it that are missing, for this user alone and durably: a loss
/// of power leaves none of them out. One that is there stays; the process that made it may have
/// ended before its name was durable, so that is seen to as well.
///
/// # Errors
/// When one cannot be made, or is not promised to be durable.
pub fn make_directory(directory: &Path) -> io::Result<()> {
    let above = directory.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !above.try_exists()? {
        make_directory(above)?;
    }
    match private::create_directory(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
        made => made?,
    }
    match File::open(above) {
        Ok(above) => above.sync_all(),
        // It lies where others may go through and not look; then it was not made here.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    }
}

impl Medium for FileMedium {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in with_descriptors(|| fs::read_dir(&self.directory))? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str, size: u64, first: &[u8]) -> io::Result<Arc<dyn MediumFile>> {
        let path = self.directory.join(name);
        let unfinished = self.directory.join(format!("{name}{UNFINISHED}"));
        let make = || {
            let options = &mut OpenOptions::new();
            let file = private::open(options.read(true).write(true).create(true).truncate(true), &unfinished)?;
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size) {
                Ok(()) => {}
                // A file system without preallocation: the size at least is known.
                Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(size)?,
                Err(error) => return Err(error.into()),
            }
            file.write_all_at(first, 0)?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            self.sync_directory()?;
            Ok(file)
        };
        match with_descriptors(make) {
            Ok(file) => Ok(Arc::new(file)),
            Err(error) => {
                // The first error is the one to tell; a leftover under this name is replaced by the
                // next attempt.
                let _ = fs::remove_file(&unfinished);
                Err(error)
            }
        }
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        let path = self.directory.join(name);
        let open = || OpenOptions::new().read(true).write(!self.read_only).open(&path);
        Ok(Arc::new(with_descriptors(open)?))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.directory.join(name))?;
        self.sync()
    }

    fn sync(&self) -> io::Result<()> {
        with_descriptors(|| self.sync_directory())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl MediumFile for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        match rustix::fs::fallocate(self, FallocateFlags::ZERO_RANGE, offset, length) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP) => {
                let zeros = [0; 1 << 16];
                let (mut at, end) = (offset, offset + length);
                while at < end {
                    let part = (end - at).min(zeros.len() as u64);
                    self.write_all_at(&zeros[..part as usize], at)?;
                    at += part;
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
