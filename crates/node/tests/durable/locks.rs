//! One job in a folder at a time, whatever leads there.

use std::os::unix::fs::symlink;

use super::*;

const DOOR: &str = "
name: j
cycle: { every: 5ms }
sources:
  posts: { type: http, format: ndjson, schema: { n: int64 } }
sinks:
  out: { type: file, input: posts, path: DIR/out.ndjson, format: ndjson }
  rows: { type: table, input: posts }
";

fn node_at(folder: &Folder, name: &str) -> Node {
    Node::builder().data_dir(folder.path(name)).workers(1).open().unwrap()
}

/// The job under another file of its sink: that has a lock of its own.
fn start_at(folder: &Folder, node: &Node, name: &str) -> Result<Arc<RunningJob>, Error> {
    folder.start(
        node,
        &DOOR.replace("name: j", &format!("name: {name}")).replace(
            "out.ndjson",
            &format!("{name}-{}.ndjson", node.data_dir().file_name().unwrap().to_string_lossy()),
        ),
    )
}

fn is_refused(started: Result<Arc<RunningJob>, Error>) {
    let error = started.err().expect("it is refused");
    assert_eq!(error.class(), Class::User, "{}", error.chain());
    assert!(error.chain().contains("is in use by another process"), "{}", error.chain());
}

#[test]
fn a_job_runs_once_whatever_links_lead_to_its_folder() {
    let folder = Folder::new();
    let node = node_at(&folder, "D");
    let job = start_at(&folder, &node, "j").unwrap();
    assert!(post(&job, 1));
    fs::remove_file(folder.path("D/lock")).unwrap();
    assert!(
        Node::builder().data_dir(folder.path("D")).open().is_err(),
        "a lock file that is gone changes nothing"
    );
    symlink("D", folder.path("L")).unwrap();
    assert!(Node::builder().data_dir(folder.path("L")).open().is_err());

    // A link to the job, to all jobs, to parts of the job, and a copy that shares its files.
    for (name, links) in
        [("E", ["jobs/j"].as_slice()), ("F", &["jobs"]), ("G", &["jobs/j/order"]), ("H", &["jobs/j/tables"])]
    {
        for link in links {
            let at = folder.path(name).join(link);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            symlink(folder.path("D").join(link), at).unwrap();
        }
        is_refused(start_at(&folder, &node_at(&folder, name), "j"));
    }
    fs::create_dir_all(folder.path("I/jobs/j")).unwrap();
    fs::hard_link(folder.path("D/jobs/j/commit.log"), folder.path("I/jobs/j/commit.log")).unwrap();
    is_refused(start_at(&folder, &node_at(&folder, "I"), "j"));
    // Another job of the same process.
    symlink("j", folder.path("D/jobs/k")).unwrap();
    is_refused(start_at(&folder, &node, "k"));

    assert!(post(&job, 3));
    job.drain();
    assert_eq!(job.wait_timeout(LIMIT).expect("it drains").state, JobState::Done);
    // The node still has D, and no node has the job.
    let elsewhere = node_at(&folder, "E");
    let other = start_at(&folder, &elsewhere, "j");
    assert!(other.is_err_and(|error| !error.chain().contains("in use")), "its sink's file is elsewhere");
    let again = start_at(&folder, &node, "j").unwrap();
    assert!(post(&again, 5));
    again.drain();
    again.wait_timeout(LIMIT).expect("it drains");
    assert_eq!(folder.read("j-D.ndjson").lines().count(), 3);
}

#[test]
fn a_job_whose_folder_is_moved_or_replaced_while_it_runs_fails() {
    for is_replaced in [false, true] {
        let folder = Folder::new();
        let node = node_at(&folder, "D");
        let job = start_at(&folder, &node, "j").unwrap();
        assert!(post(&job, 1));
        eventually("a commit", || job.cycles().unwrap().committed > 0);
        fs::rename(folder.path("D/jobs/j"), folder.path("moved")).unwrap();
        if is_replaced {
            fs::create_dir(folder.path("D/jobs/j")).unwrap();
        }
        post(&job, 2);
        let end = job.wait_timeout(LIMIT).expect("it fails");
        let failure = end.failure().expect("it fails").to_string();
        assert!(
            failure.contains("was moved, removed or replaced") || failure.contains("No such file"),
            "{failure}"
        );
        drop((job, node));
        _ = fs::remove_dir_all(folder.path("D/jobs/j"));
        fs::rename(folder.path("moved"), folder.path("D/jobs/j")).unwrap();
        let node = node_at(&folder, "D");
        let job = start_at(&folder, &node, "j").unwrap();
        job.drain();
        assert_eq!(job.wait_timeout(LIMIT).expect("it drains").state, JobState::Done);
        assert!(folder.read("j-D.ndjson").starts_with("{\"n\":1}\n"));
    }
}
