//! Older copies of a data directory, and of its parts, in the place of newer ones.

use super::*;

const DOOR: &str = "
name: door
cycle: { every: 1ms }
sources:
  posts: { type: http, format: ndjson, schema: { n: int64 } }
sinks:
  out: { type: file, input: posts, path: DIR/out.ndjson, format: ndjson }
";

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

/// Posts records one by one, each in a cycle of its own, and ends the job.
fn posted(folder: &Folder, numbers: std::ops::Range<u32>) {
    let node = folder.node(1);
    let job = folder.start(&node, DOOR).unwrap();
    for n in numbers {
        let before = job.cycles().unwrap().committed;
        assert!(post(&job, n));
        eventually("a commit", || job.cycles().unwrap().committed > before);
    }
    job.drain();
    assert_eq!(job.wait_timeout(LIMIT).expect("it drains").state, JobState::Done);
}

#[test]
fn an_older_copy_cuts_no_more_of_a_sinks_file_than_a_crash_may() {
    for first in [0, 5] {
        let folder = Folder::new();
        posted(&folder, 0..first);
        copy(&folder.path("data"), &folder.path("copy"));
        posted(&folder, first..first + 12);
        let (whole, note) =
            (folder.read("out.ndjson"), fs::read(folder.path(".out.ndjson.thalweg")).unwrap());
        fs::rename(folder.path("data"), folder.path("newer")).unwrap();
        fs::rename(folder.path("copy"), folder.path("data")).unwrap();
        let node = folder.node(1);
        let error = folder.start(&node, DOOR).err().expect("it is refused");
        drop(node);
        assert_eq!(error.class(), Class::User, "{}", error.chain());
        assert!(error.chain().contains("it is an older copy"), "{}", error.chain());
        assert!(error.hint().is_some_and(|hint| hint.contains(".out.ndjson.thalweg")), "{error:?}");
        assert_eq!(folder.read("out.ndjson"), whole, "nothing is cut");
        assert_eq!(fs::read(folder.path(".out.ndjson.thalweg")).unwrap(), note);
        // The first way out, then the last one.
        fs::rename(folder.path("data"), folder.path("copy")).unwrap();
        fs::rename(folder.path("newer"), folder.path("data")).unwrap();
        posted(&folder, first + 12..first + 13);
        assert_eq!(folder.read("out.ndjson").lines().count(), first as usize + 13);
        fs::rename(folder.path("data"), folder.path("newer")).unwrap();
        fs::rename(folder.path("copy"), folder.path("data")).unwrap();
        fs::remove_file(folder.path(".out.ndjson.thalweg")).unwrap();
        posted(&folder, 100..101);
        assert_eq!(folder.read("out.ndjson").lines().count(), first as usize + 1);
    }
}

/// Whatever moment a job is ended at, its file is not longer than a crash may leave it.
#[test]
fn a_job_that_is_ended_at_once_is_not_taken_for_an_older_copy() {
    let folder = Folder::new();
    let mut next = 0;
    for round in 0..12 {
        let node = folder.node(1 + round % 2);
        let job =
            folder.start(&node, DOOR).unwrap_or_else(|error| panic!("round {round}: {}", error.chain()));
        for _ in 0..round * 7 + 3 {
            assert!(post(&job, next));
            next += 1;
        }
        job.abort();
        job.wait();
    }
    posted(&folder, next..next + 1);
    assert_eq!(folder.read("out.ndjson").lines().count(), next as usize + 1);
}

#[test]
fn a_commit_log_without_records_beside_an_order_log_with_entries_is_no_new_job() {
    let folder = Folder::new();
    posted(&folder, 0..3);
    let path = folder.path("data/jobs/door/commit.log");
    let (whole, written) = (fs::read(&path).unwrap(), folder.read("out.ndjson"));
    fs::write(&path, &whole[..24]).unwrap();
    let node = folder.node(1);
    let error = folder.start(&node, DOOR).err().expect("it is refused");
    assert_eq!(error.class(), Class::Corrupt);
    assert!(error.message().contains("commit.log\" holds no record"), "{error}");
    assert_eq!(folder.read("out.ndjson"), written, "nothing is emptied");
}
