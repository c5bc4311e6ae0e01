//! The things outside of its job that a job file may name: anything, or the paths and variables that the operator of
//! the node has allowed.
//!
//! A job file on the command line is its user's own: it may name what that user may open ([`Reach::anything`]). One
//! that comes over HTTP is somebody else's, and the node opens files with its own rights: it may name paths below the
//! folders of `--allow-path`, and the secrets of `--allow-env` and of files below them ([`Reach::only`]).
//!
//! Paths and references are types of their own, and an option's kind makes them ([`crate::OptionKind`]). The check of
//! the job file asks for each of them, so no plug-in does, and none can forget to.
//!
//! A path is judged as it resolves: links and `..` are followed as far as the path exists. The file that is opened is
//! the one that it leads to, and as somebody may have put a link there meanwhile, it is checked again:
//! [`JobPath::verify`] checks the file that was really opened, or [`JobPath::recheck`] checks just before, which leaves
//! a moment. A table that is loaded again later is not checked again.
//!
//! Not here: network addresses. A client that may start jobs may have the node connect to any.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::ops::Deref;
use std::os::fd::AsRawFd as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use thalweg_types::Error;

/// Paths and variables that may be named.
#[derive(Clone, Debug, Default)]
pub struct Reach(Option<Arc<Allowed>>);

#[derive(Debug)]
struct Allowed {
    /// Without links; a file or a folder.
    roots: Vec<PathBuf>,
    variables: BTreeSet<String>,
    /// The node's own folder, whose files are not for jobs: its admin token, and data of other jobs.
    data_dir: Option<PathBuf>,
}

/// A path of a job file that may be opened.
#[derive(Clone)]
pub struct JobPath {
    path: PathBuf,
    reach: Reach,
}

/// Why something may not be named.
#[derive(Debug)]
pub struct Denied {
    pub what: String,
    pub hint: String,
}

impl Reach {
    pub fn anything() -> Self {
        Self(None)
    }

    /// Nothing at all.
    pub fn nothing() -> Self {
        Self(Some(Arc::new(Allowed { roots: Vec::new(), variables: BTreeSet::new(), data_dir: None })))
    }

    /// Paths below `paths`, and these environment variables. Paths in `data_dir` are left out, unless a path in it is
    /// among `paths`.
    ///
    /// # Errors
    /// If one of the paths is not there.
    pub fn only(
        paths: &[PathBuf],
        variables: impl IntoIterator<Item = String>,
        data_dir: Option<&Path>,
    ) -> Result<Self, Error> {
        let real = |path: &Path| {
            path.canonicalize().map_err(|error| {
                Error::user(format!("allowed path {path:?}"))
                    .with_hint("name a folder or a file that is there")
                    .with_source(error)
            })
        };
        Ok(Self(Some(Arc::new(Allowed {
            roots: paths.iter().map(|path| real(path)).collect::<Result<_, _>>()?,
            variables: variables.into_iter().collect(),
            data_dir: data_dir.map(real).transpose()?,
        }))))
    }

    /// A path that a job file names; relative ones are relative to the current directory.
    ///
    /// # Errors
    /// Where it may not be named.
    pub fn path(&self, named: &str) -> Result<JobPath, Denied> {
        let Some(allowed) = &self.0 else {
            return Ok(JobPath { path: named.into(), reach: self.clone() });
        };
        match resolved(Path::new(named)) {
            Some(path) if allowed.has(&path) => Ok(JobPath { path, reach: self.clone() }),
            _ => Err(Denied {
                what: format!("{named:?}, which is not below a path that job files over HTTP may name"),
                hint: "start the node with --allow-path FOLDER for what they may read and write".to_owned(),
            }),
        }
    }

    /// An environment variable that a job file refers to.
    ///
    /// # Errors
    /// Where it may not be named.
    pub fn variable(&self, name: &str) -> Result<(), Denied> {
        match &self.0 {
            Some(allowed) if !allowed.variables.contains(name) => Err(Denied {
                what: format!(
                    "the environment variable {name:?}, which job files over HTTP may not refer to"
                ),
                hint: format!("start the node with --allow-env {name}"),
            }),
            _ => Ok(()),
        }
    }
}

impl Allowed {
    /// Of a path without links.
    fn has(&self, path: &Path) -> bool {
        // One in the data directory has to have been meant.
        let own = self.data_dir.as_deref().filter(|own| path.starts_with(own));
        if own.is_some_and(|own| path == own.join("admin.token")) {
            return false;
        }
        let meant = |root: &Path| own.is_none_or(|own| root.starts_with(own) && root != own);
        self.roots.iter().any(|root| path.starts_with(root) && meant(root))
    }
}

impl JobPath {
    pub fn as_path(&self) -> &Path {
        &self.path
    }

    /// A file that was found where this path leads: the caller that opens it has to verify it.
    pub(crate) fn found(&self, path: PathBuf) -> Self {
        Self { path, reach: self.reach.clone() }
    }

    /// Checks once more that the path may be named: for libraries that open it by themselves, just before they do.
    ///
    /// # Errors
    /// If it leads elsewhere by now.
    pub fn recheck(&self) -> Result<(), Error> {
        match &self.reach.0 {
            Some(_) if resolved(&self.path).as_deref() != Some(&self.path) => Err(self.leads_out()),
            _ => Ok(()),
        }
    }

    /// Checks that a file that was opened by this path may be: somebody with write access to a folder on the way can
    /// have put a link there since the check.
    ///
    /// # Errors
    /// If it is not.
    pub fn verify(&self, file: &File) -> Result<(), Error> {
        let Some(allowed) = &self.reach.0 else { return Ok(()) };
        let opened = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(|error| {
            Error::external(format!("look where {:?} leads", self.path)).with_source(error)
        })?;
        if allowed.has(&opened) {
            return Ok(());
        }
        Err(self.leads_out())
    }

    fn leads_out(&self) -> Error {
        Error::user(format!("{:?} leads elsewhere by now than when the job file was checked", self.path))
            .with_hint("somebody has changed a link on the way: check who may write to these folders")
    }
}

impl Default for JobPath {
    fn default() -> Self {
        PathBuf::new().into()
    }
}

impl Deref for JobPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl fmt::Debug for JobPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.path, f)
    }
}

/// Of a job file that may name anything.
impl From<PathBuf> for JobPath {
    fn from(path: PathBuf) -> Self {
        Self { path, reach: Reach::anything() }
    }
}

impl AsRef<Path> for JobPath {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl PartialEq for JobPath {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

/// An absolute path without links and `..`, of which the end need not be there. `None` where it leads nowhere: through
/// a link whose end is not there, or through something that is no folder.
fn resolved(path: &Path) -> Option<PathBuf> {
    // Not by text: what `..` means depends on the links before it.
    let path = std::env::current_dir().ok()?.join(path);
    let mut missing: Vec<&std::ffi::OsStr> = Vec::new();
    let mut there = path.as_path();
    loop {
        match there.canonicalize() {
            Ok(mut real) => {
                real.extend(missing.iter().rev());
                return Some(real);
            }
            Err(error) if error.kind() == ErrorKind::NotFound && there.symlink_metadata().is_err() => {
                // `..` after a missing folder has no meaning.
                let Some(Component::Normal(name)) = there.components().next_back() else { return None };
                missing.push(name);
                there = there.parent()?;
            }
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    /// `may/` is allowed, `not/` is not, and links lead from each into the other; `D` is a data directory.
    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            let place = tempfile::tempdir().unwrap();
            let root = place.path();
            for folder in ["may/in", "not/in", "maybe", "D/jobs/a/rejects"] {
                std::fs::create_dir_all(root.join(folder)).unwrap();
            }
            for file in
                ["may/f", "may/in/f", "not/f", "not/in/f", "maybe/f", "D/admin.token", "D/jobs/a/rejects/f"]
            {
                std::fs::write(root.join(file), "x").unwrap();
            }
            for (link, to) in [
                ("may/out", "../not"),
                ("may/out_f", "../not/in/f"),
                ("may/nowhere", "../not/made"),
                ("may/again", "in"),
                ("not/back", "../may/in"),
                ("may/round", "round"),
                ("may/deep", "../not/back"),
            ] {
                symlink(to, root.join(link)).unwrap();
            }
            Self(place)
        }

        fn path(&self, path: &str) -> PathBuf {
            self.0.path().join(path)
        }

        fn named(&self, path: &str) -> String {
            self.path(path).to_str().unwrap().to_owned()
        }
    }

    #[test]
    fn paths_are_judged_by_where_they_lead() {
        let place = Place::new();
        let reach = Reach::only(&[place.path("may")], [], None).unwrap();
        for fine in [
            "may",
            "may/f",
            "may/new",
            "may/new/deeper/f",
            "may/in/../f",
            "may/again/f",
            "may/again/../f",
            "not/back/f",
            "not/../may/f",
            "may/./f",
            "may//f",
            "may/deep/f",
            "not/back/../f",
        ] {
            let path = reach.path(&place.named(fine)).unwrap_or_else(|denied| panic!("{fine}: {denied:?}"));
            assert!(
                path.as_path().starts_with(place.path("may").canonicalize().unwrap()),
                "{fine}: {path:?}"
            );
        }
        for wrong in [
            "",
            "not",
            "not/f",
            "maybe/f",
            "may/../not/f",
            "may/out",
            "may/out/f",
            "may/out_f",
            "may/nowhere",
            "may/round",
            "may/new/../f",
            "may/new/../../not/f",
            "may/f/x",
            "may/out/../may/f/..",
            "..",
            "not/new",
        ] {
            let denied = reach.path(&place.named(wrong)).expect_err(wrong);
            assert!(denied.hint.contains("--allow-path") && denied.what.contains(wrong), "{denied:?}");
        }
        for wrong in ["/", "/etc/passwd", "/proc/self/environ", "/dev/stdin", "x", "../x", "\0", ""] {
            assert!(reach.path(wrong).is_err(), "{wrong:?}");
            assert!(
                Reach::nothing().path(wrong).is_err() && Reach::anything().path(wrong).is_ok(),
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn one_file_may_be_allowed_and_missing_ones_not() {
        let place = Place::new();
        let reach = Reach::only(&[place.path("may/f")], [], None).unwrap();
        assert!(reach.path(&place.named("may/f")).is_ok() && reach.path(&place.named("may/in/f")).is_err());
        let error = Reach::only(&[place.path("missing")], [], None).unwrap_err();
        assert!(error.message().contains("missing") && error.hint().is_some(), "{error:?}");
    }

    #[test]
    fn the_data_directory_is_not_for_jobs_unless_it_was_meant() {
        let place = Place::new();
        let with = |paths: &[&str]| {
            let paths: Vec<PathBuf> = paths.iter().map(|path| place.path(path)).collect();
            Reach::only(&paths, [], Some(&place.path("D"))).unwrap()
        };
        for reach in [with(&["."]), with(&["D"])] {
            for wrong in ["D/admin.token", "D", "D/jobs/a/rejects/f", "D/new"] {
                assert!(reach.path(&place.named(wrong)).is_err(), "{wrong}");
            }
        }
        let reach = with(&["D/jobs/a/rejects", "may", "D/admin.token"]);
        assert!(
            reach.path(&place.named("D/jobs/a/rejects/f")).is_ok()
                && reach.path(&place.named("may/f")).is_ok()
        );
        assert!(
            reach.path(&place.named("D/jobs/a/new")).is_err()
                && reach.path(&place.named("D/admin.token")).is_err()
        );
    }

    #[test]
    fn variables_are_named_one_by_one() {
        let reach = Reach::only(&[], ["PASSWORD".to_owned()], None).unwrap();
        assert!(reach.variable("PASSWORD").is_ok());
        for other in ["PATH", "PASSWORD2", "password", ""] {
            assert!(reach.variable(other).unwrap_err().hint.contains("--allow-env"), "{other}");
            assert!(Reach::anything().variable(other).is_ok() && Reach::nothing().variable(other).is_err());
        }
    }

    #[test]
    fn a_link_that_is_put_there_after_the_check_is_seen_at_the_opened_file() {
        let place = Place::new();
        let reach = Reach::only(&[place.path("may")], [], None).unwrap();
        let path = reach.path(&place.named("may/in/f")).unwrap();
        path.verify(&File::open(&path).unwrap()).unwrap();
        path.recheck().unwrap();
        std::fs::rename(place.path("may/in"), place.path("may/was")).unwrap();
        symlink(place.path("not/in"), place.path("may/in")).unwrap();
        let error = path.verify(&File::open(&path).unwrap()).unwrap_err();
        assert!(error.message().contains("leads elsewhere"), "{error}");
        assert!(path.recheck().is_err());
        JobPath::from(place.path("may/in/f")).verify(&File::open(place.path("not/f")).unwrap()).unwrap();
    }

    proptest! {
        /// Whatever way is taken, an allowed path is below the allowed folder, and opening it leads there.
        #[test]
        fn no_way_leads_out(parts in proptest::collection::vec(
            proptest::sample::select(vec![
                "may", "not", "maybe", "in", "f", "out", "out_f", "again", "back", "deep", "nowhere", "round", "..", ".", "", "new",
            ]),
            1..8,
        )) {
            let place = Place::new();
            let root = place.path("may").canonicalize().unwrap();
            let reach = Reach::only(&[place.path("may")], [], None).unwrap();
            let named = place.named(&parts.join("/"));
            let real = Path::new(&named).canonicalize();
            match (reach.path(&named), real) {
                (Ok(path), Ok(real)) => prop_assert!(real.starts_with(&root) && path.as_path() == real),
                (Ok(path), Err(_)) => prop_assert!(path.as_path().starts_with(&root)),
                (Err(_), Ok(real)) => prop_assert!(!real.starts_with(&root), "{named} is fine"),
                (Err(_), Err(_)) => {}
            }
        }
    }
}
