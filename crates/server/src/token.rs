//! The admin token of a node: `D/admin.token`, made at the first start and kept from then on.
//!
//! A user who can read the file may start, stop and change jobs and queries: the file system decides who that is. So
//! the file is the node's own user's (mode 0600), and one that others can read, or that another user or a link has put
//! there, is refused by name. To change the token remove the file and start the node again.
//!
//! Invariants
//! * The token itself is in no error, log or reply; its path is.
//! * A file is there whole or not at all: it is written under another name first.
//!
//! Not here: the rights of requests with and without the token (`access`).

use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::geteuid;
use subtle::ConstantTimeEq as _;
use thalweg_types::Error;

const NAME: &str = "admin.token";

/// 256 bits.
const RANDOM_BYTES: usize = 32;

/// A longer file is not a token.
const MOST_BYTES: u64 = 4 << 10;

/// As few characters as may hold 128 bits, in base64.
const LEAST_CHARS: usize = 22;

/// The token of requests that start, stop or change something.
#[derive(Clone)]
pub struct AdminToken {
    secret: Arc<str>,
    path: PathBuf,
}

impl AdminToken {
    /// The token of a data directory, made if it has none. The caller holds the directory's lock.
    ///
    /// # Errors
    /// If the file cannot be made or read, is a link or no file, is another user's, can be read by others, or holds
    /// no token.
    pub fn of(data_dir: &Path) -> Result<Self, Error> {
        let data_dir = std::path::absolute(data_dir)
            .map_err(|error| Error::external(format!("look for {data_dir:?}")).with_source(error))?;
        let path = data_dir.join(NAME);
        let secret = match open_no_link(OpenOptions::new().read(true), &path) {
            Ok(file) => read(&path, file)?,
            Err(error) if error.kind() == ErrorKind::NotFound => make(&data_dir, &path)?,
            // The file is a link.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
                return Err(refused(&path, "is a link, expected a file"));
            }
            Err(error) => return Err(failed("open", &path, error)),
        };
        Ok(Self { secret: secret.into(), path })
    }

    /// Where it is kept.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// For clients on this machine that have found it as this process did.
    pub fn reveal(&self) -> &str {
        &self.secret
    }

    /// Whether `said` is the token, in a time that does not reveal how much of it is right.
    pub(crate) fn is(&self, said: &str) -> bool {
        self.secret.as_bytes().ct_eq(said.as_bytes()).into()
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AdminToken({:?})", self.path)
    }
}

fn read(path: &Path, file: File) -> Result<String, Error> {
    let found = file.metadata().map_err(|error| failed("look at", path, error))?;
    if !found.is_file() {
        return Err(refused(path, "is no regular file"));
    }
    if found.uid() != geteuid().as_raw() {
        return Err(refused(
            path,
            &format!("belongs to user {}, expected {}", found.uid(), geteuid().as_raw()),
        ));
    }
    if found.mode() & 0o077 != 0 {
        let mode = found.mode() & 0o7777;
        return Err(refused(
            path,
            &format!("can be read or written by others: its mode is {mode:04o}, expected 0600"),
        ));
    }
    let mut text = String::new();
    file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => refused(path, "holds no token: it is not text"),
        _ => failed("read", path, error),
    })?;
    let token = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() {
        return Err(refused(path, "is empty"));
    }
    if text.len() as u64 > MOST_BYTES
        || token.len() < LEAST_CHARS
        || !token.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(refused(
            path,
            &format!("holds no token: expected one line of {LEAST_CHARS} or more letters and digits"),
        ));
    }
    Ok(token.to_owned())
}

/// Written under another name and moved, so that a crash leaves no half of it. The lock is held, so no other node
/// makes it; a file or link that is put there meanwhile is replaced, not followed.
fn make(data_dir: &Path, path: &Path) -> Result<String, Error> {
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|error| {
        Error::external("make a token: the system gives no randomness").with_source(error)
    })?;
    let mut secret = String::with_capacity(2 * RANDOM_BYTES);
    for byte in random {
        let _ = write!(secret, "{byte:02x}");
    }
    let beside = data_dir.join(format!("{NAME}.new"));
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed("remove", &beside, error)),
        _ => {}
    }
    let mut file = open_no_link(OpenOptions::new().write(true).create_new(true).mode(0o600), &beside)
        .map_err(|error| failed("create", &beside, error))?;
    let written = file.write_all(format!("{secret}\n").as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| failed("write", &beside, error))?;
    std::fs::rename(&beside, path).map_err(|error| failed("create", path, error))?;
    // Its name has to outlive a power cut, or a client that has read it would be refused after the next start.
    let synced = File::open(data_dir).and_then(|folder| folder.sync_all());
    synced.map_err(|error| failed("sync the folder of", path, error))?;
    Ok(secret)
}

/// A pipe in its place does not hold the start up.
fn open_no_link(options: &mut OpenOptions, path: &Path) -> std::io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    options.custom_flags(flags.bits() as i32).open(path)
}

fn refused(path: &Path, why: &str) -> Error {
    Error::user(format!("admin token {path:?} {why}")).with_hint(
        "remove it, and the next start makes another one; clients on this machine then have to read that",
    )
}

fn failed(action: &str, path: &Path, error: std::io::Error) -> Error {
    Error::external(format!("{action} admin token {path:?}"))
        .with_hint("the data directory has to be the node's own user's, and writable")
        .with_source(error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn put(dir: &Path, text: &str, mode: u32) {
        let path = dir.join(NAME);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn why(dir: &Path) -> String {
        let error = AdminToken::of(dir).unwrap_err();
        assert!(error.hint().is_some_and(|hint| hint.contains("remove it")), "{error:?}");
        assert!(error.message().contains("admin.token"), "{error}");
        error.chain()
    }

    #[test]
    fn it_is_made_once_for_its_user_alone() {
        let dir = folder();
        let token = AdminToken::of(dir.path()).unwrap();
        let found = std::fs::metadata(token.path()).unwrap();
        assert_eq!((found.mode() & 0o7777, found.uid()), (0o600, geteuid().as_raw()));
        assert_eq!(token.reveal().len(), 64);
        assert!(token.is(token.reveal()) && !token.is("") && !token.is(&token.reveal()[1..]));
        assert_eq!(AdminToken::of(dir.path()).unwrap().reveal(), token.reveal(), "and kept");
        assert!(!format!("{token:?}").contains(token.reveal()));
        let files: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(files, [NAME]);
        assert_ne!(AdminToken::of(folder().path()).unwrap().reveal(), token.reveal());
    }

    #[test]
    fn removing_it_changes_it() {
        let dir = folder();
        let first = AdminToken::of(dir.path()).unwrap();
        std::fs::remove_file(first.path()).unwrap();
        assert_ne!(AdminToken::of(dir.path()).unwrap().reveal(), first.reveal());
    }

    #[test]
    fn what_others_may_have_seen_or_made_is_refused_by_name() {
        let good = "0123456789abcdef0123456789abcdef\n";
        for mode in [0o644, 0o640, 0o604, 0o620, 0o602, 0o660, 0o601] {
            let dir = folder();
            put(dir.path(), good, mode);
            let why = why(dir.path());
            assert!(why.contains(&format!("mode is {mode:04o}")) && !why.contains("0123456789"), "{why}");
        }
        for (text, said) in [
            ("", "is empty"),
            ("\n", "holds no token"),
            ("short\n", "holds no token"),
            ("0123456789abcdef 0123456789abcdef\n", "holds no token"),
            ("0123456789abcdef\n0123456789abcdef\n", "holds no token"),
            (&"x".repeat(5_000), "holds no token"),
        ] {
            let dir = folder();
            put(dir.path(), text, 0o600);
            assert!(why(dir.path()).contains(said), "{text:?}");
        }
        let dir = folder();
        std::fs::write(dir.path().join("elsewhere"), good).unwrap();
        symlink(dir.path().join("elsewhere"), dir.path().join(NAME)).unwrap();
        assert!(why(dir.path()).contains("is a link"));

        let dir = folder();
        symlink(dir.path().join("nowhere"), dir.path().join(NAME)).unwrap();
        assert!(why(dir.path()).contains("is a link"));
        assert!(!dir.path().join("nowhere").exists(), "nothing is made at the end of a link");

        let dir = folder();
        std::fs::create_dir(dir.path().join(NAME)).unwrap();
        assert!(why(dir.path()).contains("is no regular file"));
    }

    #[test]
    fn what_a_crash_has_left_is_in_nobodys_way() {
        let dir = folder();
        std::fs::write(dir.path().join("target"), "kept").unwrap();
        symlink(dir.path().join("target"), dir.path().join("admin.token.new")).unwrap();
        let token = AdminToken::of(dir.path()).unwrap();
        assert_eq!(AdminToken::of(dir.path()).unwrap().reveal(), token.reveal());
        assert_eq!(std::fs::read_to_string(dir.path().join("target")).unwrap(), "kept");
    }
}
