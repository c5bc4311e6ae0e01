//! What was found, for people.

use std::fmt::Write;
use std::path::Path;

use thalweg_node::inspect::{
    CommitLook, Damage, Entry, JournalLook, LogLook, OrderLook, ReservoirLook, StateLook, TableLook,
    TablePart, Thing, Torn, What,
};
use thalweg_types::{format_size, format_timestamp};

/// A thing with all that is in it, over several lines.
pub(super) fn thing(thing: &Thing) -> String {
    let mut out = format!("{}: {}\n", thing.path.display(), headline(thing));
    match &thing.what {
        What::Commits(look) => commits(look, &mut out),
        What::Order(look) => segments(&look.log, &mut out),
        What::Journal(look) => segments(&look.log, &mut out),
        What::Log(look) => segments(look, &mut out),
        What::Reservoir(look) => reservoir(look, &mut out),
        What::State(look) => state(look, &mut out),
        What::Table(look) => table(look, &mut out),
        What::File { .. } | What::Unread => {}
    }
    for found in &thing.torn {
        line(&mut out, &format!("torn: {}", torn(found)));
    }
    for found in &thing.damage {
        line(&mut out, &damage(found));
    }
    for found in &thing.trouble {
        line(&mut out, &format!("not read: {found}"));
    }
    for note in &thing.notes {
        line(&mut out, &format!("note: {note}"));
    }
    out
}

/// One word: the worst that was found.
pub(super) fn verdict(thing: &Thing) -> &'static str {
    match thing {
        Thing { damage, .. } if !damage.is_empty() => "damaged",
        Thing { trouble, .. } if !trouble.is_empty() => "unread",
        Thing { torn, .. } if !torn.is_empty() => "torn",
        Thing { what: What::Unread, .. } => "skipped",
        _ => "ok",
    }
}

/// A line for a thing that was checked; more lines for more that is wrong with it.
pub(super) fn verified(thing: &Thing) -> String {
    let found = thing.damage.iter().map(damage);
    let found = found.chain(thing.trouble.iter().cloned());
    let found = found.chain(thing.torn.iter().map(torn)).chain(thing.notes.iter().cloned());
    let mut found = found.collect::<Vec<_>>().into_iter();
    let first = found.next().map_or(String::new(), |first| format!("; {first}"));
    let mut out = format!("{:<8} {}: {}{first}\n", verdict(thing), thing.path.display(), headline(thing));
    for more in found {
        line(&mut out, &format!("       {more}"));
    }
    out
}

pub(super) fn damage(damage: &Damage) -> String {
    let Damage { path, pos, message } = damage;
    match pos {
        Some(pos) => format!("damage in {} at byte {pos}: {message}", path.display()),
        None => format!("damage in {}: {message}", path.display()),
    }
}

fn torn(torn: &Torn) -> String {
    let Torn { path, pos, bytes } = torn;
    format!("{bytes} bytes from byte {pos} of {} on do not count, the next start cuts them", path.display())
}

fn line(out: &mut String, text: &str) {
    out.push_str("  ");
    out.push_str(text);
    out.push('\n');
}

fn headline(thing: &Thing) -> String {
    let of = thing.of.as_ref().map_or(String::new(), |of| format!(" of {of}"));
    let about = match &thing.what {
        What::Commits(look) => {
            let last = match &look.last {
                Some(last) => format!("last of cycle {}", last.cycle),
                None => "none".to_owned(),
            };
            format!(" of job {:?}, {}, {last}", look.job, count(look.records, "record"))
        }
        What::Order(look) => format!(", {}{}", log(&look.log), order(look)),
        What::Journal(look) => format!(", {}{}", log(&look.log), journal(look)),
        What::Log(look) => format!(" {:?}, {}", look.name, log(look)),
        What::Reservoir(look) => {
            format!(
                ", {}, {}, {}",
                count(look.chunks.len() as u64, "chunk"),
                count(look.rows, "row"),
                size(look.bytes)
            )
        }
        What::State(look) => {
            let cycle = look.cycle.map_or(String::new(), |cycle| format!(" as of cycle {cycle}"));
            format!(
                "{cycle}, {}, {} live, {} on disk",
                count(look.keys, "key"),
                size(look.live_bytes),
                size(look.disk_bytes)
            )
        }
        What::Table(look) => {
            let files = look.parts.iter().map(|part| part.files).sum();
            let bytes = look.parts.iter().map(|part| part.bytes).sum::<u64>() + look.fresh_bytes;
            format!(
                ", {}, {} and frames, {}",
                count(look.rows, "row"),
                count(files, "Parquet file"),
                size(bytes)
            )
        }
        What::File { committed_bytes, .. } => format!(", committed up to byte {committed_bytes}"),
        What::Unread => String::new(),
    };
    format!("{}{of}{about}", thing.kind)
}

fn log(look: &LogLook) -> String {
    let LogLook { first, next, bytes, .. } = *look;
    if next == first {
        return format!("no records, {}", size(bytes));
    }
    format!("records {first} to {}, {}", next - 1, size(bytes))
}

fn order(look: &OrderLook) -> String {
    let Some((first, end)) = look.numbers else { return String::new() };
    let mut text = format!(", numbers {first} to {}: {}", end.saturating_sub(1), count(look.runs, "run"));
    let _ = write!(text, " of {}, {}", count(look.records, "record"), count(look.ticks, "tick"));
    if look.commands > 0 {
        let _ = write!(text, ", {}", count(look.commands, "command"));
    }
    if let Some((first, last)) = look.cycles {
        let _ = write!(text, ", cycles {first} to {last}");
    }
    if look.has_ended {
        text.push_str(", ended");
    }
    text
}

fn journal(look: &JournalLook) -> String {
    let Some((first, end)) = look.offsets else { return String::new() };
    format!(", offsets {first} to {}, {} of the source", end.saturating_sub(1), size(look.payload_bytes))
}

fn segments(look: &LogLook, out: &mut String) {
    for segment in &look.segments {
        let records = match segment.next == segment.first {
            true => "no records".to_owned(),
            false => format!("records {} to {}", segment.first, segment.next - 1),
        };
        let text = format!(
            "{}: {records}, {}, made {}",
            name(&segment.path),
            size(segment.bytes),
            format_timestamp(segment.created)
        );
        line(out, &text);
    }
}

fn commits(look: &CommitLook, out: &mut String) {
    let Some(last) = &look.last else { return };
    line(
        out,
        &format!(
            "cycle {} at {}, goes on with number {}, record {} of the order log",
            last.cycle,
            format_timestamp(last.now),
            last.next,
            last.order
        ),
    );
    for source in &last.sources {
        let journal =
            source.journal.map_or(String::new(), |record| format!(", record {record} of its journal"));
        line(out, &format!("source {}: goes on with offset {}{journal}", source.name, source.next));
    }
    for (name, part) in &last.parts {
        let says = part.says.as_ref().map_or(String::new(), |says| format!(": {says}"));
        line(out, &format!("part {name}, {}{says}", size(part.bytes)));
    }
    for query in &last.queries {
        line(out, &format!("query {query}"));
    }
}

fn reservoir(look: &ReservoirLook, out: &mut String) {
    for (id, columns) in look.schemas.iter().enumerate() {
        line(out, &format!("schema {id}: {}", columns.join(", ")));
    }
    for file in &look.files {
        let chunks = match file.next == file.first {
            true => "no chunks".to_owned(),
            false => format!("chunks {} to {}", file.first, file.next - 1),
        };
        line(out, &format!("{}: {chunks}, {}", name(&file.path), size(file.bytes)));
    }
    for chunk in &look.chunks {
        line(
            out,
            &format!(
                "chunk {}: {}, {} to {}, {}, schema {}",
                chunk.id,
                count(chunk.rows.into(), "row"),
                format_timestamp(chunk.first_time),
                format_timestamp(chunk.last_time),
                size(chunk.bytes),
                chunk.schema
            ),
        );
    }
}

fn state(look: &StateLook, out: &mut String) {
    if let Some((first, last)) = look.cycles {
        line(out, &format!("changes of cycles {first} to {last}"));
    }
    for segment in &look.segments {
        let kind = if segment.is_sealed { "sealed" } else { "active" };
        line(
            out,
            &format!(
                "segment {}, {kind}: {}, {} of them live, {}",
                segment.number,
                count(segment.entries, "change"),
                segment.live_entries,
                size(segment.bytes)
            ),
        );
    }
    line(out, &count(look.index_files, "index file"));
    for path in &look.leftovers {
        line(out, &format!("{}: named by nothing, the next start removes it", name(path)));
    }
}

/// A record of a log, in one line.
pub(super) fn entry(entry: &Entry) -> String {
    match entry {
        Entry::Run { record, number, count: records, source, partition, offset, arrival } => {
            let partition = if *partition == 0 { String::new() } else { format!(" partition {partition}") };
            let at = format_timestamp(*arrival);
            format!(
                "{record}: run, number {number}, {} of source {source}{partition} from offset {offset} on, came {at}",
                count(*records, "record")
            )
        }
        Entry::Tick { record, number, now } => {
            format!("{record}: tick, number {number}, {}", format_timestamp(*now))
        }
        Entry::Cycle { record, number, cycle } => format!("{record}: cycle {cycle}, number {number}"),
        Entry::Command { record, number, text } => {
            format!("{record}: command, number {number}, {}", text.as_deref().unwrap_or("nothing to repeat"))
        }
        Entry::End { record, number } => format!("{record}: end, number {number}"),
        Entry::Block { record, partition, offset, count: records, bytes, arrival, refused } => {
            let partition =
                if *partition == 0 { String::new() } else { format!(" of partition {partition}") };
            let came = arrival.map_or(String::new(), |at| format!(", came {}", format_timestamp(at)));
            let refused = refused.as_ref().map_or(String::new(), |reason| format!(", refused: {reason}"));
            format!(
                "{record}: block{partition}, offset {offset}, {}, {bytes} bytes{came}{refused}",
                count(*records, "record")
            )
        }
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// `1 record`, `2 records`.
fn count(number: u64, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {what}{s}")
}

fn size(bytes: u64) -> String {
    format_size(bytes)
}

fn table(look: &TableLook, out: &mut String) {
    for TablePart { name, files, rows, bytes, span } in &look.parts {
        let span = span.map_or(String::new(), |(first, last)| {
            format!(", {} to {}", format_timestamp(first), format_timestamp(last))
        });
        let _ = writeln!(
            out,
            "  {name}: {}, {}, {}{span}",
            count(*rows, "row"),
            count(*files, "file"),
            size(*bytes)
        );
    }
    let _ = writeln!(out, "  fresh: {}, {}", count(look.fresh_rows, "row"), size(look.fresh_bytes));
    let _ = writeln!(out, "  columns: {}", look.columns.join(", "));
}
