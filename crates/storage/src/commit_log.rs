//! The commit log: one file of records of which the last whole one counts.
//!
//! Layout: magic 8, format version 2, zeros 2, run 8, checksum of these 20 bytes 4, then frames ([`crate::frame`]), one per
//! record, and after each one a *seal*, a frame without a payload. A record is appended and synced, and then sealed: so
//! a last record that is not whole and has a seal was whole once, and is damage; one without a seal is what a crash
//! leaves of an append, and is cut when the file is opened. A seal says nothing else, all its bytes are known, and it
//! need not be durable before the next record is. A file that has grown long is replaced, by rename, by one that holds
//! the new record alone.
//!
//! The *run* is a number that the log is made with, and keeps: the other files of its owner have it too, so that files
//! of another log of the same name are not taken for its own. 0 if none was given.
//!
//! Format 1 had zeros in place of run and checksum, 16 bytes of header, and no seals. It is read, and written anew when it
//! is opened.
//!
//! Invariants
//! * [`CommitLog::append`] has returned: the record survives a power cut, and is what the next opening finds.
//! * It has not: the next opening finds that record or the one before it, whole.
//! * Damage that no crash leaves is an error with file and byte, never an older record.
//!
//! Not here: what a record says.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::frame::{Chain, FRAME_HEADER, FrameError, FrameReader, announced_len, parse};
use crate::fs::write_again;
use crate::log::LogError;
use crate::{File, Fs, OpenMode, publish};

/// Persisted.
const MAGIC: &[u8; 8] = b"thlgcmt\n";
const VERSION: u16 = 2;
const HEADER: usize = 24;
/// Of the first version.
const FIRST_HEADER: usize = 16;
/// Where the checksum of the header is.
const CHECKSUM: usize = 20;

/// A file longer than this is replaced at the next append.
const LONG: u64 = 1 << 20;

/// How often a file that changes is read, at most, until its damage stays the same.
const READINGS: u32 = 8;

/// The file and its only writer.
#[derive(Debug)]
#[must_use]
pub struct CommitLog {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    identity: u64,
    run: u64,
    file: Arc<dyn File>,
    chain: Chain,
    end: u64,
    /// What made it unusable.
    failed: Option<String>,
}

/// A commit log that was opened.
#[derive(Debug)]
pub struct OpenedCommits {
    pub log: CommitLog,
    /// The last record; `None` in a new file.
    pub last: Option<Vec<u8>>,
    /// Bytes of an append that a crash had cut short, and opening has cut off: to be reported once.
    pub torn: Option<u64>,
}

/// What a commit log holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitSummary {
    /// Oldest first.
    pub records: Vec<Vec<u8>>,
    /// Bytes up to the end of the last record.
    pub bytes: u64,
    /// Bytes after it that are no whole record: what a crash has left, or an append under way.
    pub torn: Option<u64>,
    /// What the log was made with.
    pub run: u64,
}

/// Reads a commit log, while another process may write it; nothing is changed.
///
/// A writer that opens the file cuts what a crash has left, and writes there anew. A reading that this came between has
/// bytes of before and of after: only bytes that are the same a second time are damage.
///
/// # Errors
/// As [`CommitLog::open`].
pub fn read_commits(fs: &dyn Fs, path: &Path, identity: u64) -> Result<CommitSummary, LogError> {
    let mut bytes = read(fs, path)?;
    let mut readings = 1;
    let Survey { records, torn, end, run, .. } = loop {
        match survey(path, &bytes, identity) {
            Err(damage @ LogError::Damaged { .. }) => {
                let again = read(fs, path)?;
                if again == bytes || readings == READINGS {
                    return Err(damage);
                }
                bytes = again;
                readings += 1;
            }
            outcome => break outcome?,
        }
    };
    Ok(CommitSummary { records, bytes: end, torn, run })
}

/// Whether a file begins as a commit log does.
///
/// # Errors
/// The disk's errors.
pub fn is_commit_log(fs: &dyn Fs, path: &Path) -> io::Result<bool> {
    let file = fs.open(path, OpenMode::Read)?;
    let mut head = [0; MAGIC.len()];
    if file.len()? < head.len() as u64 {
        return Ok(false);
    }
    file.read_exact_at(&mut head, 0)?;
    Ok(head == *MAGIC)
}

impl CommitLog {
    /// Opens the file, or makes it. `identity` distinguishes it from those of other jobs.
    ///
    /// # Errors
    /// [`LogError::Damaged`], [`LogError::NewerFormat`], the disk's errors.
    pub fn open(fs: Arc<dyn Fs>, path: impl Into<PathBuf>, identity: u64) -> Result<OpenedCommits, LogError> {
        Self::open_or_make(fs, path, identity, 0)
    }

    /// The same; a log that is made here has `run` in it.
    ///
    /// # Errors
    /// As [`CommitLog::open`].
    pub fn open_or_make(
        fs: Arc<dyn Fs>,
        path: impl Into<PathBuf>,
        identity: u64,
        run: u64,
    ) -> Result<OpenedCommits, LogError> {
        let path = path.into();
        let missing = |error: &LogError| matches!(error, LogError::Io(disk) if disk.kind() == std::io::ErrorKind::NotFound);
        let bytes = match read(fs.as_ref(), &path) {
            Err(error) if missing(&error) => {
                publish(fs.as_ref(), &path, &header(run)).map_err(LogError::io("create", &path))?;
                header(run).to_vec()
            }
            bytes => bytes?,
        };
        let mut survey = survey(&path, &bytes, identity)?;
        if survey.version < VERSION {
            let mut chain = Chain::new(identity);
            let mut bytes = header(survey.run).to_vec();
            survey.records.iter().for_each(|record| push(record, &mut chain, &mut bytes));
            publish(fs.as_ref(), &path, &bytes).map_err(LogError::io("replace", &path))?;
            survey = Survey { chain, end: bytes.len() as u64, is_sealed: true, ..survey };
        }
        let Survey { mut records, torn, mut chain, mut end, is_sealed, version, run } = survey;
        let file = fs.open(&path, OpenMode::Write).map_err(LogError::io("open", &path))?;
        if torn.is_some() && version == VERSION {
            file.truncate(end).map_err(LogError::io("cut", &path))?;
        }
        // What a killed process wrote may not be synced, the name neither, and from here on it counts.
        let last = records.pop();
        let seal = if is_sealed { FRAME_HEADER } else { 0 };
        let last_bytes = last.as_ref().map_or(0, |record| (FRAME_HEADER + record.len() + seal) as u64);
        write_again(file.as_ref(), end - last_bytes..end).map_err(LogError::io("write again", &path))?;
        file.sync_data().map_err(LogError::io("sync", &path))?;
        if last.is_some() && !is_sealed {
            let mut seal = Vec::new();
            chain.push(&[], &mut seal);
            file.write_all_at(&seal, end).map_err(LogError::io("write", &path))?;
            end += seal.len() as u64;
            file.sync_data().map_err(LogError::io("sync", &path))?;
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        fs.sync_dir(folder).map_err(LogError::io("sync", folder))?;
        Ok(OpenedCommits {
            log: Self { fs, path, identity, run, file, chain, end, failed: None },
            last,
            torn,
        })
    }

    /// Appends a record, which is not empty. It is durable when this returns.
    ///
    /// # Errors
    /// The disk's errors. Afterwards every call fails: whether the record counts shows when it is opened again.
    ///
    /// # Panics
    /// If the record is empty, as seals are.
    pub fn append(&mut self, record: &[u8]) -> Result<(), LogError> {
        assert!(!record.is_empty(), "a record of a commit log has bytes");
        if let Some(reason) = &self.failed {
            return Err(LogError::Poisoned { dir: self.path.clone(), reason: reason.clone() });
        }
        let outcome = if self.is_long() { self.replace(record) } else { self.add(record) };
        if let Err(error) = &outcome {
            self.failed = Some(error.to_string());
        }
        outcome
    }

    /// What the log was made with.
    pub fn run(&self) -> u64 {
        self.run
    }

    /// Whether the next record that is appended will replace all before it.
    pub fn is_long(&self) -> bool {
        self.end > LONG
    }

    fn add(&mut self, record: &[u8]) -> Result<(), LogError> {
        let mut chain = self.chain;
        let mut frame = Vec::new();
        chain.push(record, &mut frame);
        self.file.write_all_at(&frame, self.end).map_err(LogError::io("write", &self.path))?;
        self.file.sync_data().map_err(LogError::io("sync", &self.path))?;
        // Not before: it says that the record before it is on the disk.
        let record = frame.len();
        chain.push(&[], &mut frame);
        let seal = self.end + record as u64;
        self.file.write_all_at(&frame[record..], seal).map_err(LogError::io("write", &self.path))?;
        self.chain = chain;
        self.end += frame.len() as u64;
        Ok(())
    }

    fn replace(&mut self, record: &[u8]) -> Result<(), LogError> {
        let mut chain = Chain::new(self.identity);
        let mut bytes = header(self.run).to_vec();
        push(record, &mut chain, &mut bytes);
        publish(self.fs.as_ref(), &self.path, &bytes).map_err(LogError::io("replace", &self.path))?;
        self.file = self.fs.open(&self.path, OpenMode::Write).map_err(LogError::io("open", &self.path))?;
        self.chain = chain;
        self.end = bytes.len() as u64;
        Ok(())
    }
}

/// Adds a record and its seal to bytes that are written as a whole.
fn push(record: &[u8], chain: &mut Chain, bytes: &mut Vec<u8>) {
    chain.push(record, bytes);
    chain.push(&[], bytes);
}

fn header(run: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..10].copy_from_slice(&VERSION.to_le_bytes());
    header[12..CHECKSUM].copy_from_slice(&run.to_le_bytes());
    let crc = crc32fast::hash(&header[..CHECKSUM]);
    header[CHECKSUM..].copy_from_slice(&crc.to_le_bytes());
    header
}

fn read(fs: &dyn Fs, path: &Path) -> Result<Vec<u8>, LogError> {
    let file = fs.open(path, OpenMode::Read).map_err(LogError::io("open", path))?;
    // Bounded: it is replaced when it is long, and a record is a manifest.
    let len = file.len().map_err(LogError::io("read", path))?;
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    // Whoever opens it to write may have cut it since.
    let count = file.read_up_to(&mut bytes, 0).map_err(LogError::io("read", path))?;
    bytes.truncate(count);
    Ok(bytes)
}

struct Survey {
    version: u16,
    records: Vec<Vec<u8>>,
    torn: Option<u64>,
    chain: Chain,
    end: u64,
    /// The last record has its seal.
    is_sealed: bool,
    run: u64,
}

/// The chain after a seal that should be at the start of `bytes` and is not, where the next record is: sectors of
/// writes that no sync has followed arrive in any order, so a record may be there and the seal before it not.
fn lost_seal(bytes: &[u8], mut chain: Chain) -> Option<Chain> {
    let mut seal = Vec::new();
    chain.push(&[], &mut seal);
    let next = bytes.get(seal.len()..)?;
    parse(next, chain).is_ok().then_some(chain)
}

fn survey(path: &Path, bytes: &[u8], identity: u64) -> Result<Survey, LogError> {
    let damaged = |pos, what, expected: String, got: String| LogError::Damaged {
        path: path.to_owned(),
        pos,
        what,
        expected,
        got,
    };
    // The header came by rename: no crash leaves half of it.
    let short =
        |wanted: usize| damaged(0, "bytes of the header", wanted.to_string(), bytes.len().to_string());
    let Some(head) = bytes.get(..FIRST_HEADER) else { return Err(short(HEADER)) };
    let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
    if head[..8] != *MAGIC {
        return Err(damaged(0, "magic", shown(MAGIC), shown(&head[..8])));
    }
    let version = u16::from_le_bytes([head[8], head[9]]);
    let is_first = version == 1 && head[10..] == [0; 6];
    let (run, start) = if is_first {
        (0, FIRST_HEADER)
    } else {
        let Some((head, crc)) = bytes.get(..HEADER).map(|head| head.split_at(CHECKSUM)) else {
            return Err(short(HEADER));
        };
        let expected = crc32fast::hash(head).to_le_bytes();
        if version < 2 || crc != expected {
            return Err(damaged(8, "checksum of the header", shown(&expected), shown(crc)));
        }
        if version > VERSION {
            return Err(LogError::NewerFormat { path: path.to_owned(), known: VERSION, got: version });
        }
        let mut run = [0; 8];
        run.copy_from_slice(&head[12..]);
        (u64::from_le_bytes(run), HEADER)
    };
    let chain = Chain::new(identity);
    // A torn first record has the chain of this file in its header, or no header: another chain is another file's.
    let rest = &bytes[start..];
    let first = announced_len(rest).and_then(|_| Chain::at(identity, rest));
    if let Some(first) = first.filter(|first| *first != chain) {
        let [expected, got] = [chain, first].map(|chain| format!("{:#010x}", chain.previous()));
        return Err(damaged(
            start as u64,
            "name that the log was made for (is its folder renamed?)",
            expected,
            got,
        ));
    }
    let mut reader = FrameReader::new(bytes, start, chain);
    let mut records = Vec::new();
    let mut is_sealed = false;
    let torn = loop {
        match reader.next_frame() {
            Ok(Some(frame)) => {
                is_sealed = frame.payload.is_empty();
                if !is_sealed {
                    records.push(frame.payload.to_vec());
                }
            }
            Ok(None) => break None,
            Err(error) => {
                let at = reader.position() as usize;
                let may_be_lost = version > 1 && !is_sealed && !records.is_empty();
                if let Some(chain) = may_be_lost.then(|| lost_seal(&bytes[at..], reader.chain())).flatten() {
                    reader = FrameReader::new(bytes, at + FRAME_HEADER, chain);
                    continue;
                }
                match error {
                    FrameError::Torn { bytes, .. } => break Some(bytes),
                    FrameError::Damaged { pos, what, expected, got } => {
                        return Err(damaged(pos, what, format!("{expected:#010x}"), format!("{got:#010x}")));
                    }
                }
            }
        }
    };
    Ok(Survey { version, records, torn, chain: reader.chain(), end: reader.position(), is_sealed, run })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Fault, FaultKind, FaultyFs, MemFs, make_dir};

    const PATH: &str = "job/commit.log";

    fn fs() -> Arc<MemFs> {
        let fs = Arc::new(MemFs::new());
        make_dir(&*fs, Path::new("job")).unwrap();
        fs
    }

    fn open(fs: &Arc<MemFs>) -> OpenedCommits {
        CommitLog::open(Arc::clone(fs) as Arc<dyn Fs>, PATH, 7).unwrap()
    }

    fn record(number: u32, len: usize) -> Vec<u8> {
        number.to_le_bytes().iter().copied().cycle().take(len).collect()
    }

    proptest! {
        /// After a crash the last record is the last that was appended, through any number of replacements.
        #[test]
        fn the_last_record_survives(lens in prop::collection::vec(1_usize..400_000, 1..12)) {
            let fs = fs();
            let mut opened = open(&fs);
            prop_assert_eq!(opened.last, None);
            for (number, len) in lens.into_iter().enumerate() {
                let record = record(number as u32, len);
                opened.log.append(&record).unwrap();
                fs.crash();
                opened = open(&fs);
                prop_assert_eq!(opened.last.as_ref(), Some(&record));
                prop_assert_eq!(opened.torn, None);
            }
        }
    }

    #[test]
    fn what_a_crash_leaves_of_an_append_is_cut() {
        let fs = fs();
        let mut log = open(&fs).log;
        log.append(b"one").unwrap();
        let end = log.end;
        log.append(b"two").unwrap();
        let whole = read(fs.as_ref(), Path::new(PATH)).unwrap();
        for len in end as usize..whole.len() {
            let file = fs.open(Path::new(PATH), OpenMode::Create).unwrap();
            file.write_all_at(&whole[..len], 0).unwrap();
            let mut opened = open(&fs);
            // Its seal may be cut alone.
            let (last, kept) = match len >= whole.len() - FRAME_HEADER {
                true => (b"two".as_slice(), (whole.len() - FRAME_HEADER) as u64),
                false => (b"one".as_slice(), end),
            };
            assert_eq!(opened.last.as_deref(), Some(last), "cut at {len}");
            assert_eq!(opened.torn, Some(len as u64 - kept).filter(|torn| *torn > 0));
            opened.log.append(b"three").unwrap();
            assert_eq!(open(&fs).last.as_deref(), Some(b"three".as_slice()));
        }
    }

    /// Does something before the n-th reading of a file, as if another process had come between.
    #[derive(Debug)]
    struct Between {
        fs: Arc<MemFs>,
        reading: std::sync::atomic::AtomicUsize,
        files: Vec<Option<Vec<u8>>>,
    }

    impl crate::Layer for Between {
        fn inner(&self) -> &dyn Fs {
            self.fs.as_ref()
        }

        fn read_at(
            &self,
            path: &Path,
            file: &dyn File,
            buffer: &mut [u8],
            position: u64,
        ) -> io::Result<usize> {
            let reading = self.reading.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if let Some(Some(bytes)) = self.files.get(reading) {
                self.fs.set_bytes(path, bytes.clone())?;
            }
            // A page at a time, as a file is read while it is written.
            let page = buffer.len().min(32);
            file.read_at(&mut buffer[..page], position)
        }
    }

    #[test]
    fn a_reader_sees_a_log_that_is_cut_and_goes_on_meanwhile_as_it_was_or_as_it_is() {
        let fs = fs();
        let mut log = open(&fs).log;
        log.append(b"one").unwrap();
        let sealed = fs.bytes(Path::new(PATH)).unwrap();
        log.append(&record(2, 150)).unwrap();
        let two = fs.bytes(Path::new(PATH)).unwrap();
        let torn = two[..sealed.len() + 120].to_vec();
        let mut log = {
            fs.set_bytes(Path::new(PATH), torn.clone()).unwrap();
            open(&fs).log
        };
        log.append(b"three").unwrap();
        log.append(b"four").unwrap();
        let after = fs.bytes(Path::new(PATH)).unwrap();
        let mut cut_short = 0;
        for at in 0..=torn.len().div_ceil(32) {
            for next in [&sealed, &after, &two] {
                fs.set_bytes(Path::new(PATH), torn.clone()).unwrap();
                let mut files = vec![None; at];
                files.push(Some(next.clone()));
                let between = Between { fs: Arc::clone(&fs), reading: 0.into(), files };
                let read = read_commits(&crate::Layered::over(between), Path::new(PATH), 7)
                    .unwrap_or_else(|error| panic!("reading {at}: {error}"));
                let records = survey(Path::new(PATH), next, 7).unwrap().records;
                assert!(records.starts_with(&read.records), "reading {at}: {:?}", read.records);
                assert!(!read.records.is_empty(), "reading {at}");
                cut_short += usize::from(next.len() < torn.len());
            }
        }
        assert!(cut_short > 0, "no file was cut under its reader");
    }

    /// A seal holds nothing; all else is either as it was or damage, the very last record too.
    #[test]
    fn every_flipped_bit_is_found_or_lies_in_a_seal() {
        let fs = fs();
        let mut log = open(&fs).log;
        let mut seals = Vec::new();
        for record in [b"one".as_slice(), b"two"] {
            log.append(record).unwrap();
            seals.push(log.end as usize - FRAME_HEADER..log.end as usize);
        }
        let whole = read(fs.as_ref(), Path::new(PATH)).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            match survey(Path::new(PATH), &bytes, 7) {
                Ok(survey) => {
                    assert!(seals.iter().any(|seal| seal.contains(&(bit / 8))), "bit {bit}");
                    assert_eq!(survey.records, [b"one", b"two"], "bit {bit}");
                }
                Err(LogError::Damaged { pos, .. }) => assert!(pos as usize <= (bit / 8).max(8), "bit {bit}"),
                Err(error) => panic!("bit {bit}: {error}"),
            }
        }
    }

    #[test]
    fn a_log_keeps_the_run_that_it_was_made_with() {
        let fs = fs();
        let open = |run| CommitLog::open_or_make(Arc::clone(&fs) as Arc<dyn Fs>, PATH, 7, run).unwrap().log;
        let mut log = open(5);
        for len in [1, LONG as usize + 1, 3] {
            log.append(&record(9, len)).unwrap();
            assert_eq!(open(6).run(), 5);
            assert_eq!(read_commits(fs.as_ref(), Path::new(PATH), 7).unwrap().run, 5);
        }
    }

    /// Sectors that no sync has followed arrive in any order.
    #[test]
    fn a_seal_that_did_not_arrive_before_the_next_record_is_missed_by_nobody() {
        let fs = fs();
        let mut log = open(&fs).log;
        log.append(b"one").unwrap();
        let seal = log.end as usize - FRAME_HEADER;
        log.append(b"two").unwrap();
        let mut bytes = fs.bytes(Path::new(PATH)).unwrap();
        bytes.truncate(bytes.len() - FRAME_HEADER);
        bytes[seal..seal + FRAME_HEADER].fill(0);
        fs.set_bytes(Path::new(PATH), bytes).unwrap();
        let mut opened = open(&fs);
        assert_eq!((opened.last.as_deref(), opened.torn), (Some(b"two".as_slice()), None));
        opened.log.append(b"three").unwrap();
        assert_eq!(open(&fs).last.as_deref(), Some(b"three".as_slice()));
    }

    /// What a release before the seals wrote.
    fn first_format(records: &[&[u8]]) -> Vec<u8> {
        let mut bytes = [MAGIC.as_slice(), &[1, 0], &[0; 6]].concat();
        let mut chain = Chain::new(7);
        records.iter().for_each(|record| chain.push(record, &mut bytes));
        bytes
    }

    #[test]
    fn a_log_of_the_first_format_is_read_and_written_anew() {
        for torn in [0, 5] {
            let fs = fs();
            let mut bytes = first_format(&[b"one", b"two", b"three"]);
            bytes.truncate(bytes.len() - torn);
            fs.open(Path::new(PATH), OpenMode::CreateNew).unwrap();
            fs.set_bytes(Path::new(PATH), bytes.clone()).unwrap();
            let read = read_commits(fs.as_ref(), Path::new(PATH), 7).unwrap();
            assert_eq!(
                (read.records.len(), fs.bytes(Path::new(PATH)).unwrap()),
                (if torn > 0 { 2 } else { 3 }, bytes)
            );
            let mut opened = open(&fs);
            assert_eq!(opened.last.as_deref(), read.records.last().map(Vec::as_slice));
            opened.log.append(b"four").unwrap();
            fs.crash();
            let again = read_commits(fs.as_ref(), Path::new(PATH), 7).unwrap();
            assert_eq!(again.records[..read.records.len()], read.records);
            assert_eq!(again.records.last().map(Vec::as_slice), Some(b"four".as_slice()));
            assert_eq!(fs.bytes(Path::new(PATH)).unwrap()[8], 2);
        }
        let whole = first_format(&[b"one"]);
        for bit in 0..FIRST_HEADER * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = survey(Path::new(PATH), &bytes, 7).err().expect("a changed header");
            assert!(matches!(error, LogError::Damaged { .. }), "bit {bit}: {error}");
        }
    }

    #[test]
    fn the_log_of_another_job_is_not_taken_for_a_torn_one_of_this() {
        for records in [1, 3] {
            let fs = fs();
            let mut log = open(&fs).log;
            for _ in 0..records {
                log.append(b"one").unwrap();
            }
            let whole = fs.bytes(Path::new(PATH)).unwrap();
            let error = CommitLog::open(Arc::clone(&fs) as Arc<dyn Fs>, PATH, 8).unwrap_err();
            assert!(matches!(error, LogError::Damaged { pos: 24, .. }), "{error}");
            assert!(error.to_string().contains("is its folder renamed?"), "{error}");
            assert_eq!(fs.bytes(Path::new(PATH)).unwrap(), whole, "and stays as it is");
        }
    }

    /// Each block zeroed, dropped, doubled, and swapped with the next, where that changes something.
    fn with_damaged_blocks(whole: &[u8], block: usize) -> Vec<Vec<u8>> {
        let mut damaged = Vec::new();
        for at in (0..whole.len()).step_by(block) {
            let (before, rest) = whole.split_at(at);
            let (here, behind) = rest.split_at(block.min(rest.len()));
            let (next, last) = behind.split_at(block.min(behind.len()));
            let zeros = vec![0; here.len()];
            damaged.extend([
                [before, &zeros[..], behind].concat(),
                [before, behind].concat(),
                [before, here, here, behind].concat(),
                [before, next, here, last].concat(),
            ]);
        }
        damaged.retain(|bytes| bytes.as_slice() != whole);
        damaged
    }

    /// The header must be whole, and so must every record that has a whole frame after its beginning, if it is its own
    /// seal; what else is damaged is a torn tail.
    #[test]
    fn lost_and_misplaced_blocks_are_damage_unless_no_whole_frame_follows() {
        let fs = fs();
        let mut log = open(&fs).log;
        let (mut records, mut frames) = (Vec::new(), Vec::new());
        let mut begin = log.end as usize;
        for (number, len) in [3, 200, 1, 90, 40, 150].into_iter().enumerate() {
            records.push(record(number as u32, len));
            log.append(&records[number]).unwrap();
            let end = log.end as usize;
            frames.push([begin..end - FRAME_HEADER, end - FRAME_HEADER..end]);
            begin = end;
        }
        let whole = read(fs.as_ref(), Path::new(PATH)).unwrap();
        let (mut found, mut torn) = (0, 0);
        for bytes in [16, 64].into_iter().flat_map(|block| with_damaged_blocks(&whole, block)) {
            let changed = (0_usize..).find(|at| whole.get(*at) != bytes.get(*at)).unwrap();
            let stands = |frame: &std::ops::Range<usize>| {
                bytes.windows(frame.len()).any(|window| window == &whole[frame.clone()])
            };
            match survey(Path::new(PATH), &bytes, 7) {
                Ok(survey) => {
                    let kept = survey.records.len();
                    assert_eq!(survey.records, records[..kept], "changed at {changed}");
                    let lost = frames[kept..].iter().flatten();
                    assert!(!lost.clone().any(stands), "changed at {changed}: something follows the cut");
                    torn += 1;
                }
                Err(LogError::Damaged { pos, .. }) => {
                    assert!(
                        changed < HEADER || pos as usize <= changed,
                        "changed at {changed}, found at {pos}"
                    );
                    let behind = &bytes[pos as usize..];
                    let follows = frames.iter().flatten().any(|frame| {
                        behind.windows(frame.len()).any(|window| window == &whole[frame.clone()])
                    });
                    assert!(changed < HEADER || follows, "changed at {changed}: nothing follows");
                    found += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(found > torn && torn > 0, "{found} found, {torn} torn");
    }

    /// A last record that was lost looks like one that never arrived: the one before it counts.
    #[test]
    fn only_the_last_record_may_be_lost_and_none_may_be_misplaced() {
        let fs = fs();
        let mut log = open(&fs).log;
        let mut bounds = vec![0, log.end as usize];
        for record in [b"one".as_slice(), b"second", b"the third"] {
            log.append(record).unwrap();
            bounds.push(log.end as usize);
        }
        let path = Path::new(PATH);
        let whole = fs.bytes(path).unwrap();
        let [head, one, two, three] = [0, 1, 2, 3].map(|part| &whole[bounds[part]..bounds[part + 1]]);
        let [no_two, no_three] = [two, three].map(|frame| vec![0_u8; frame.len()]);
        for (what, bytes, expected) in [
            ("the last one dropped", [head, one, two].concat(), Ok(None)),
            ("the last one zeroed", [head, one, two, &no_three].concat(), Ok(Some(three.len() as u64))),
            ("the last one doubled", [head, one, two, three, three].concat(), Err(bounds[4])),
            ("the last two swapped", [head, one, three, two].concat(), Err(bounds[2])),
            ("the one before dropped", [head, one, three].concat(), Err(bounds[2])),
            ("the one before zeroed", [head, one, &no_two, three].concat(), Err(bounds[2])),
            ("the one before doubled", [head, one, two, two, three].concat(), Err(bounds[3])),
        ] {
            fs.set_bytes(path, bytes.clone()).unwrap();
            let outcome = match CommitLog::open(Arc::clone(&fs) as Arc<dyn Fs>, PATH, 7) {
                Ok(opened) => {
                    assert_eq!(opened.last.as_deref(), Some(b"second".as_slice()), "{what}");
                    Ok(opened.torn)
                }
                Err(LogError::Damaged { path: named, pos, .. }) => {
                    assert_eq!((named.as_path(), fs.bytes(path).unwrap()), (path, bytes), "{what}");
                    Err(pos as usize)
                }
                Err(error) => panic!("{what}: {error}"),
            };
            assert_eq!(outcome, expected, "{what}");
        }
    }

    #[test]
    fn a_record_whose_sync_failed_and_that_counts_all_the_same_is_on_the_disk() {
        let fs = fs();
        let mut log = open(&fs).log;
        log.append(b"one").unwrap();
        let calls = FaultyFs::new(Arc::clone(&fs) as Arc<dyn Fs>, None);
        drop(CommitLog::open(Arc::new(calls.clone()), PATH, 7).unwrap());
        // An append is a write and a sync, and a write after that.
        let fault = Fault { call: calls.calls() + 2, kind: FaultKind::Eio, stays: false };
        let faulty = Arc::new(FaultyFs::new(Arc::clone(&fs) as Arc<dyn Fs>, Some(fault)));
        let mut log = CommitLog::open(faulty, PATH, 7).unwrap().log;
        assert!(log.append(b"two").is_err());
        fs.lose_unsynced(Path::new(PATH)).unwrap();

        let mut again = open(&fs);
        assert_eq!(again.last.as_deref(), Some(b"two".as_slice()), "read from the cache");
        again.log.append(b"three").unwrap();
        fs.crash();
        assert_eq!(open(&fs).last.as_deref(), Some(b"three".as_slice()));
    }

    #[test]
    fn reading_changes_nothing_and_tells_all() {
        let fs = fs();
        let mut log = open(&fs).log;
        for record in [b"one".as_slice(), b"two"] {
            log.append(record).unwrap();
        }
        let path = Path::new(PATH);
        assert!(is_commit_log(fs.as_ref(), path).unwrap());
        let whole = fs.bytes(path).unwrap();
        let found = read_commits(fs.as_ref(), path, 7).unwrap();
        assert_eq!(found.records, [b"one", b"two"]);
        assert_eq!((found.bytes, found.torn), (whole.len() as u64, None));
        fs.set_bytes(path, whole[..whole.len() - 1].to_vec()).unwrap();
        let found = read_commits(fs.as_ref(), path, 7).unwrap();
        let seal = FRAME_HEADER as u64;
        assert_eq!((found.records.len(), found.torn), (2, Some(seal - 1)));
        assert_eq!(fs.bytes(path).unwrap().len(), whole.len() - 1);
        fs.set_bytes(path, whole[..whole.len() - FRAME_HEADER - 1].to_vec()).unwrap();
        let found = read_commits(fs.as_ref(), path, 7).unwrap();
        assert_eq!((found.records.len(), found.torn), (1, Some(whole.len() as u64 - seal - 1 - found.bytes)));
        fs.set_bytes(path, b"thlg".to_vec()).unwrap();
        assert!(!is_commit_log(fs.as_ref(), path).unwrap());
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let fs = fs();
        drop(open(&fs));
        let mut newer = header(0);
        newer[8] = 9;
        let crc = crc32fast::hash(&newer[..CHECKSUM]);
        newer[CHECKSUM..].copy_from_slice(&crc.to_le_bytes());
        fs.open(Path::new(PATH), OpenMode::Write).unwrap().write_all_at(&newer, 0).unwrap();
        let error = CommitLog::open(fs, PATH, 7).unwrap_err();
        assert_eq!(
            error.to_string(),
            "segment \"job/commit.log\" has format version 9, this program reads versions up to 2"
        );
    }

    /// The n-th call of each kind fails: the last record is the one before or the new one, and the log stops.
    #[test]
    fn whatever_fails_the_last_record_is_whole() {
        let mut hits = 0;
        for kind in [FaultKind::Eio, FaultKind::Enospc] {
            for call in 1..60 {
                let memory = fs();
                let fault = Fault { call, kind, stays: false };
                let faulty = Arc::new(FaultyFs::new(Arc::clone(&memory) as Arc<dyn Fs>, Some(fault)));
                let mut appended = None;
                let mut tried = None;
                if let Ok(mut opened) = CommitLog::open(Arc::clone(&faulty) as Arc<dyn Fs>, PATH, 7) {
                    for number in 0..6 {
                        let record = record(number, 300_000);
                        tried = Some(record.clone());
                        if opened.log.append(&record).is_err() {
                            assert!(matches!(opened.log.append(b"again"), Err(LogError::Poisoned { .. })));
                            break;
                        }
                        appended = Some(record);
                    }
                }
                hits += faulty.hits();
                memory.crash();
                let found = open(&memory).last;
                assert!(found == appended || found == tried, "{kind:?} at call {call}");
            }
        }
        assert!(hits > 40, "nearly every fault happened: {hits}");
    }
}
