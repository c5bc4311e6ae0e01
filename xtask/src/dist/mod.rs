//! `cargo xtask dist`: the files of a release, for each machine an archive, a Debian package, a wheel and the folder that
//! a container is built from.
//!
//! All of them carry the same program, which is static and runs on any Linux of its machine. The same program and commit
//! give the same bytes: entries are sorted, belong to root, and have the time of the commit.
//! The files of a package besides the program are in `packaging/`, whose README says how each is used.

mod archive;
mod command_line;
mod container;
mod deb;
mod program;
mod stamp;
mod sums;
mod target;
mod tools;
mod tree;
mod trial;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use self::program::Program;
use self::target::Target;
use self::tools::{Features, Tools};
use thalweg_harness::project;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Machines to build for; all of them where not given
    #[arg(long = "target", value_name = "MACHINE", value_delimiter = ',')]
    targets: Vec<Target>,
    /// Folder for the files; `packages` in the target folder where not given
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Make only these
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    only: Vec<Kind>,
    #[command(flatten)]
    features: Features,
    /// Package this program instead of building one; the machine is read from its head
    #[arg(long, value_name = "PATH", conflicts_with_all = ["targets", "no_default_features", "features"])]
    binary: Option<PathBuf>,
}

/// What is made of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// `thalweg-VERSION-TARGET.tar.gz`
    Archive,
    /// `thalweg_VERSION_ARCHITECTURE.deb`
    Deb,
    /// `thalweg-VERSION-py3-none-PLATFORMS.whl`
    Wheel,
    /// `thalweg-VERSION-TARGET-container/`
    Container,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Archive, Self::Deb, Self::Wheel, Self::Container];

    /// Whether it starts a node that listens.
    fn serves(self) -> bool {
        matches!(self, Self::Deb | Self::Container)
    }
}

/// What all packages of one run share.
#[derive(Clone, Debug)]
struct Release {
    /// The repository's folder.
    root: PathBuf,
    version: &'static str,
    /// Seconds since 1970 that files in packages have.
    time: u64,
}

impl Release {
    fn of_this_commit() -> Result<Self> {
        Ok(Self { root: project::root(), version: env!("CARGO_PKG_VERSION"), time: stamp::time()? })
    }

    /// A file of the repository.
    fn read(&self, path: &str) -> Result<Vec<u8>> {
        fs::read(self.root.join(path)).with_context(|| format!("read {path}"))
    }

    fn read_text(&self, path: &str) -> Result<String> {
        fs::read_to_string(self.root.join(path)).with_context(|| format!("read {path}"))
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let kinds = if options.only.is_empty() { &Kind::ALL[..] } else { &options.only };
    let serves = kinds.iter().any(|kind| kind.serves());
    ensure!(
        !serves || options.features.has("http"),
        "the Debian package and the container serve HTTP, and the program would not: \
         add --features http, or leave them out by --only archive,wheel"
    );
    let release = Release::of_this_commit()?;
    let out = match &options.out {
        Some(out) => out.clone(),
        None => project::scratch("packages")?,
    };
    fs::create_dir_all(&out).with_context(|| format!("create {}", out.display()))?;
    for path in programs(options)? {
        let program = Program::read(&path)?;
        if serves {
            trial::run(&release, &path, program.target)?;
        }
        for kind in kinds {
            let made = make(*kind, &release, &program, &out)?;
            println!("{}", made.display());
        }
    }
    println!("{}", sums::write(&out)?.display());
    Ok(ExitCode::SUCCESS)
}

/// The programs to package: one that is there, or one for each machine, built now.
fn programs(options: &Options) -> Result<Vec<PathBuf>> {
    if let Some(path) = &options.binary {
        return Ok(vec![path.clone()]);
    }
    let tools = Tools::install()?;
    let targets = if options.targets.is_empty() { &Target::ALL[..] } else { &options.targets };
    targets.iter().map(|target| tools.build(*target, &options.features)).collect()
}

fn make(kind: Kind, release: &Release, program: &Program, out: &Path) -> Result<PathBuf> {
    let (name, bytes) = match kind {
        Kind::Archive => archive::make(release, program)?,
        Kind::Deb => deb::make(release, program)?,
        Kind::Wheel => wheel::make(release, program)?,
        Kind::Container => return container::write(release, program, out),
    };
    let path = out.join(name);
    fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(line: &str) -> Options {
        Line::try_parse_from(line.split(' ')).map_err(|error| error.to_string()).unwrap().options
    }

    #[test]
    fn a_node_that_cannot_listen_is_not_packaged_as_a_service() {
        let error = run(&parse("dist --no-default-features")).unwrap_err().to_string();
        assert!(error.contains("--features http"), "{error}");
    }

    #[test]
    fn a_program_that_is_there_has_its_machine_and_features_already() {
        for more in ["--target x86_64", "--no-default-features", "--features sql"] {
            let line = format!("dist --binary thalweg {more}");
            assert!(Line::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
        assert_eq!(parse("dist --only deb,wheel").only, [Kind::Deb, Kind::Wheel]);
    }
}
