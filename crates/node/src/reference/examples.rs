//! An example of each plug-in that comes with the engine: a whole job file.

/// What a plug-in is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Source,
    Format,
    Operator,
    Sink,
}

impl Kind {
    pub const ALL: [Self; 4] = [Kind::Source, Kind::Format, Kind::Operator, Kind::Sink];

    pub(super) fn title(self) -> &'static str {
        match self {
            Kind::Source => "Source",
            Kind::Format => "Format",
            Kind::Operator => "Operator",
            Kind::Sink => "Sink",
        }
    }
}

macro_rules! examples {
    ($($kind:ident $folder:literal: $($name:literal)*;)*) => {
        const ALL: &[(Kind, &str, &str)] = &[
            $($((
                Kind::$kind,
                $name,
                include_str!(concat!("examples/", $folder, "/", $name, ".yaml")),
            ),)*)*
        ];
    };
}

examples! {
    Source "source": "file" "stdin" "http" "tcp" "udp" "sflow" "pcap" "generator";
    Format "format": "csv" "ndjson" "line_protocol" "lines";
    Operator "operator": "metrics" "filter" "map" "union" "relay" "split" "count" "aggregate" "join" "changes"
        "range_join" "lookup_join" "member_join";
    Sink "sink": "file" "stdout" "null" "influx" "postgres" "table";
}

/// The example of a plug-in, a job file; `None` for those that users add.
pub fn example(kind: Kind, name: &str) -> Option<&'static str> {
    ALL.iter().find(|(of, called, _)| *of == kind && *called == name).map(|(_, _, text)| *text)
}
