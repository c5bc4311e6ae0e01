use std::fs;
use std::sync::mpsc;

use super::*;

const SECOND: Micros = 1_000_000;

impl<T: Send + Sync + 'static> Watched<T> {
    /// Polls, and waits for the thread where it was asked to look; says whether there is another table now.
    fn settle(&self, now: Micros) -> bool {
        if self.poll(now) {
            return true;
        }
        let mut state = self.lock();
        if !state.is_checking {
            return false;
        }
        let reply = state.replies.recv().expect("the thread lives");
        state.take(reply, now).is_some()
    }
}

struct File(tempfile::TempDir);

impl File {
    fn new(text: &str) -> Self {
        let file = Self(tempfile::tempdir().expect("a folder"));
        file.replace(text);
        file
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("table")
    }

    /// By renaming, as it should be done.
    fn replace(&self, text: &str) {
        let new = self.0.path().join("new");
        fs::write(&new, text).expect("a file");
        fs::rename(new, self.path()).expect("a file");
    }

    fn watch(&self, name: &str) -> Watched<u32> {
        let path = self.path();
        Watched::open(name, vec![self.path()], move || number(&path), 0).expect("a number")
    }
}

fn number(path: &Path) -> Result<u32, Error> {
    let text = fs::read_to_string(path).map_err(|error| Error::external("read").with_source(error))?;
    text.parse().map_err(|_| Error::user(format!("expected a number, got {text:?}")).with_hint("write one"))
}

fn counts<T: Send + Sync + 'static>(table: &Watched<T>) -> (u64, u64) {
    let metrics = table.metrics(0);
    (metrics.reload_count, metrics.failed_reload_count)
}

#[test]
fn a_changed_file_is_loaded_once_and_put_in_place() {
    let file = File::new("1");
    let table = file.watch("numbers");
    assert_eq!(*table.current(), 1);
    assert!(!table.settle(SECOND), "it has not changed");

    file.replace("2");
    let before = table.current();
    assert!(!table.settle(2 * SECOND - 1), "a second has not passed since the last look");
    assert_eq!(*table.current(), 1);
    assert!(table.settle(2 * SECOND));
    assert_eq!(
        (*before, *table.current(), counts(&table)),
        (1, 2, (1, 0)),
        "a holder of the old one keeps it"
    );
    assert_eq!(table.metrics(2 * SECOND + 1_500_000).age_seconds, 1.5);
    assert!(!table.settle(3 * SECOND));
    assert_eq!(counts(&table), (1, 0));
}

#[test]
fn of_a_wrong_file_one_warning_is_logged_and_the_old_table_kept() {
    thalweg_testing::logs::all();
    let warnings = || {
        let logged = thalweg_testing::logs::all();
        let ours = logged.lines().filter(|line| line.contains("table=\"warned of\"")).map(str::to_owned);
        ours.filter(|line| line.contains("WARN")).collect::<Vec<_>>()
    };
    let file = File::new("1");
    let table = file.watch("warned of");
    file.replace("one");
    for second in 1..5 {
        assert!(!table.settle(second * SECOND));
    }
    assert_eq!((*table.current(), counts(&table)), (1, (0, 1)));
    let said = warnings();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains(
            r#"kept the old table table="warned of" error="expected a number, got \"one\"" hint="write one""#
        ),
        "{said:?}"
    );

    fs::remove_file(file.path()).expect("it is there");
    for second in 5..8 {
        assert!(!table.settle(second * SECOND));
    }
    assert_eq!((counts(&table), warnings().len()), ((0, 2), 2), "a file that is gone is one more change");
    file.replace("3");
    assert!(table.settle(8 * SECOND));
    assert_eq!((*table.current(), counts(&table)), (3, (1, 2)));
}

#[test]
fn what_cannot_be_loaded_at_first_is_not_opened() {
    let error = Watched::<u32>::open("none", Vec::new(), || Err(Error::user("wrong")), 0).err();
    assert_eq!(error.expect("an error").message(), "wrong");
}

#[test]
fn polls_do_not_wait_for_a_table_that_is_being_loaded() {
    let file = File::new("1");
    let (path, (go, wait)) = (file.path(), mpsc::channel::<()>());
    go.send(()).expect("it is there");
    let load = move || {
        wait.recv().expect("the test lives");
        number(&path)
    };
    let table = Watched::open("slow", vec![file.path()], load, 0).expect("a number");
    file.replace("2");
    for second in 1..100 {
        assert!(!table.poll(second * SECOND), "it is not loaded yet");
        assert_eq!(*table.current(), 1);
    }
    go.send(()).expect("it is there");
    assert!(table.settle(100 * SECOND));
    assert_eq!((*table.current(), counts(&table)), (2, (1, 0)), "a hundred polls asked for one look");
}

#[test]
fn a_table_whose_file_changed_while_it_was_loaded_is_loaded_again() {
    let file = File::new("1");
    let path = file.path();
    let changes = std::sync::atomic::AtomicU32::new(0);
    let load = move || {
        let loaded = number(&path)?;
        // The first load is that of the opening; during the second one the file is written again.
        if changes.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1 {
            fs::write(&path, "333").expect("a file");
        }
        Ok(loaded)
    };
    let table = Watched::open("busy", vec![file.path()], load, 0).expect("a number");
    file.replace("22");
    assert!(!table.settle(SECOND), "what was loaded may be half of each");
    assert!(table.settle(2 * SECOND));
    assert_eq!((*table.current(), counts(&table)), (333, (1, 0)));
}

#[test]
fn a_load_that_panics_counts_as_a_failed_one() {
    let file = File::new("1");
    let path = file.path();
    let load = move || Ok(number(&path).expect("a number"));
    let table = Watched::open("panics", vec![file.path()], load, 0).expect("a number");
    file.replace("one");
    assert!(!table.settle(SECOND));
    assert_eq!((*table.current(), counts(&table)), (1, (0, 1)));
    file.replace("2");
    assert!(table.settle(2 * SECOND), "the thread goes on");
}

#[test]
fn a_clock_that_was_put_back_does_not_stop_the_looking() {
    let file = File::new("1");
    let table = file.watch("clock");
    assert!(!table.settle(1_000 * SECOND));
    file.replace("2");
    assert!(table.settle(500 * SECOND));
    assert_eq!(table.metrics(0).age_seconds, 0.0);
}

#[test]
fn the_thread_ends_with_the_table() {
    let (alive, ended) = mpsc::channel::<()>();
    let load = move || {
        let _held = &alive;
        Ok(0_u32)
    };
    let table = Watched::open("ends", Vec::new(), load, 0).expect("a table");
    drop(table);
    assert!(ended.recv().is_err(), "the thread has let go of what it held");
}
