//! Two growing files, through a filter, into a table of PostgreSQL that goes away now and then.
//!
//! The order log says how records of both were mixed, and rows are numbered as they come: so all rows are known, and
//! where each is. Rows that were there after one crash have to be there after the next.

use std::cell::RefCell;
use std::io::Write as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use super::grown::Grown;
use super::{Job, Make, Setting};
use crate::counts::Outages;
use crate::database::{Database, Outage};
use crate::decide::Tuning;
use crate::disk::Found;
use crate::engine::Engine;
use crate::ledger::Ledger;
use thalweg_harness::random::Random;

/// The filter lets more than this through.
const THRESHOLD_CENTS: u64 = 100;

const MAKE_TABLE: &str = "DROP TABLE IF EXISTS payments, thalweg_cycles; \
     CREATE TABLE payments (pos bigserial, who text, n bigint, cents bigint)";
const ROWS: &str = "SELECT who, n, cents FROM payments ORDER BY pos";

struct Rows {
    database: Rc<RefCell<Database>>,
    inputs: [Input; 2],
    password: PathBuf,
    /// What was in the table when the engine had ended, the last time that one could look.
    seen: String,
    /// The next outage, after this number of further calls of `feed`.
    next: Option<(u64, Outage)>,
    outages: Outages,
    random: Random,
}

struct Input {
    name: &'static str,
    file: Grown,
    /// Cents by offset.
    cents: Vec<u64>,
}

/// Starts a database for all rounds.
pub(super) fn open() -> Result<Result<Make, String>> {
    let database = match Database::open()? {
        Ok(database) => Rc::new(RefCell::new(database)),
        Err(reason) => return Ok(Err(reason)),
    };
    Ok(Ok(Box::new(move |setting| Ok(Box::new(Rows::new(setting, Rc::clone(&database))?)))))
}

impl Rows {
    fn new(setting: &Setting<'_>, database: Rc<RefCell<Database>>) -> Result<Self> {
        let mut random = setting.random.clone();
        let mut input = |name: &'static str| {
            let cents: Vec<u64> =
                (0..random.between(2_000, 10_000)).map(|_| random.between(0, 999)).collect();
            let mut text = b"who,n,cents\n".to_vec();
            for (n, cents) in cents.iter().enumerate() {
                writeln!(text, "{name},{n},{cents}")?;
            }
            let file = Grown::begun(setting.folder.join(format!("{name}.csv")), text)?;
            anyhow::Ok(Input { name, file, cents })
        };
        let inputs = [input("a")?, input("b")?];
        let password = setting.folder.join("password");
        std::fs::write(&password, database.borrow().password())?;
        database.borrow_mut().bring_up()?;
        database.borrow().query(MAKE_TABLE)?;
        // One at least, so that no round passes without.
        let next = Some((random.between(0, 300), outage(&mut random)));
        Ok(Self {
            database,
            inputs,
            password,
            seen: String::new(),
            next,
            outages: Outages::default(),
            random,
        })
    }

    /// Rows never change, and more come after them.
    fn check_seen(&mut self) -> Result<()> {
        let rows = self.database.borrow().query(ROWS)?;
        let same = self.seen.lines().zip(rows.lines()).take_while(|(one, other)| one == other).count();
        ensure!(
            same == self.seen.lines().count(),
            "row {} of the table was {:?}, now it is {:?}",
            same + 1,
            self.seen.lines().nth(same),
            rows.lines().nth(same)
        );
        self.seen = rows;
        Ok(())
    }
}

fn outage(random: &mut Random) -> Outage {
    if random.percent(60) { Outage::Kill } else { Outage::Stop }
}

impl Job for Rows {
    fn job_file(&self, tuning: &Tuning) -> Value {
        let source = |input: &Input| {
            json!({
                "type": "file",
                "path": input.file.path,
                "follow": true,
                "poll": tuning.poll,
                "format": "csv",
                "schema": { "who": "string", "n": "int64", "cents": "int64" },
            })
        };
        let sources: Map<String, Value> =
            self.inputs.iter().map(|input| (input.name.to_owned(), source(input))).collect();
        json!({
            "name": "crash",
            "cycle": tuning.cycle,
            "state": tuning.state(),
            "sources": sources,
            "operators": { "big": {
                "type": "filter",
                "input": [tuning.input("a"), tuning.input("b")],
                "where": format!("cents > {THRESHOLD_CENTS}"),
            }},
            "sinks": { "out": {
                "type": "postgres",
                "input": tuning.input("big"),
                "url": format!("postgres://postgres@{}/postgres", self.database.borrow().address()),
                "password": format!("file:{}", self.password.display()),
                "table": "payments",
                "retry_wait": "50ms",
            }},
        })
    }

    fn sinks(&self) -> &[(String, PathBuf)] {
        &[]
    }

    fn commits_elsewhere(&self) -> bool {
        true
    }

    fn is_drained(&self) -> bool {
        true
    }

    fn started(&mut self, _: &Engine) -> Result<()> {
        if self.next.is_none() && self.random.percent(20) {
            self.next = Some((self.random.between(0, 100), outage(&mut self.random)));
        }
        Ok(())
    }

    fn feed(&mut self) -> Result<()> {
        let input = &mut self.inputs[self.random.between(0, 1) as usize];
        input.file.grow(&mut self.random)?;
        let mut database = self.database.borrow_mut();
        database.look()?;
        match &mut self.next {
            Some((0, outage)) if database.runs() => {
                database.go_away(*outage, self.random.time(Duration::from_millis(150)));
                match outage {
                    Outage::Kill => self.outages.kills += 1,
                    Outage::Stop => self.outages.stops += 1,
                }
                self.next = None;
            }
            Some((left, _)) => *left = left.saturating_sub(1),
            None => {}
        }
        Ok(())
    }

    fn is_fed(&self) -> bool {
        self.next.is_none() && self.inputs.iter().all(|input| input.file.is_whole())
    }

    fn stopped(&mut self) -> Result<()> {
        let is_up = self.database.borrow().runs();
        // One that was just started may not be up, and one that was killed is looked at later.
        if is_up && self.random.percent(50) {
            self.database.borrow_mut().bring_up()?;
            self.check_seen()?;
        }
        Ok(())
    }

    fn outages(&self) -> Outages {
        self.outages
    }

    fn recount(&mut self, found: &Found, ledger: &Ledger) -> Result<u64> {
        self.database.borrow_mut().bring_up()?;
        self.check_seen()?;
        let commit = found.commit.as_ref().context("there is no commit record at the end")?;
        let mut rows = self.seen.lines().enumerate();
        for run in ledger.runs()? {
            let (name, _) = commit.sources.get(run.source).context("a source that no commit names")?;
            let input = self.inputs.iter().find(|input| input.name == name).context("an unknown source")?;
            for offset in run.first..run.first + run.count {
                let cents = *input.cents.get(offset as usize).context("an offset after the file's end")?;
                if cents > THRESHOLD_CENTS {
                    let (number, row) =
                        rows.next().with_context(|| format!("{name}@{offset} is in no row"))?;
                    let expected = format!("{name}|{offset}|{cents}");
                    ensure!(row == expected, "row {} is {row}, expected {expected}", number + 1);
                }
            }
        }
        ensure!(rows.next().is_none(), "there are more rows than the order names");
        for (name, next) in &commit.sources {
            let input = self.inputs.iter().find(|input| input.name == name).context("an unknown source")?;
            let count = input.cents.len() as u64;
            ensure!(*next == count, "source {name} ended at offset {next}, its file has {count} records");
        }
        Ok(self.inputs.iter().map(|input| input.cents.len() as u64).sum())
    }
}
