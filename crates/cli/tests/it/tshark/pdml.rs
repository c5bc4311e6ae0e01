//! Reads what `tshark -T pdml` prints: packets as trees of fields, an element on each line.

/// A field, a group of fields or a protocol.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// `sflow_245.agent`, `eth`; empty for a group.
    pub(super) name: String,
    /// The value, or a group's title.
    pub(super) show: String,
    pub(super) is_protocol: bool,
    pub(super) children: Vec<Node>,
}

impl Node {
    /// The first field of this name below, whatever is between.
    pub(super) fn find(&self, name: &str) -> Option<&Node> {
        self.children.iter().find_map(|child| if child.name == name { Some(child) } else { child.find(name) })
    }

    pub(super) fn protocol(&self, name: &str) -> Option<&Node> {
        self.children.iter().find(|child| child.is_protocol && child.name == name)
    }

    /// A group's title up to the number at its end.
    pub(super) fn title(&self) -> &str {
        self.show.split(", seq ").next().unwrap_or_default()
    }

    pub(super) fn is_group(&self) -> bool {
        self.name.is_empty()
    }
}

/// Gives each packet of a capture to `each`, as a node whose children are its protocols.
pub(super) fn packets(text: &str, mut each: impl FnMut(Node)) {
    let mut open: Vec<Node> = Vec::new();
    for line in text.lines() {
        let line = line.trim_start();
        let (is_protocol, is_field) = (line.starts_with("<proto "), line.starts_with("<field "));
        if line.starts_with("<packet>") {
            open = vec![Node::default()];
        } else if is_protocol || is_field {
            let attribute = |name| attribute(line, name).unwrap_or_default();
            open.push(Node {
                name: attribute("name"),
                show: attribute("show"),
                is_protocol,
                children: Vec::new(),
            });
            if line.ends_with("/>") {
                close(&mut open);
            }
        } else if line.starts_with("</proto>") || line.starts_with("</field>") {
            close(&mut open);
        } else if line.starts_with("</packet>") {
            assert_eq!(open.len(), 1, "elements are closed");
            each(open.remove(0));
        }
    }
}

fn close(open: &mut Vec<Node>) {
    let node = open.pop().expect("an element that was opened");
    open.last_mut().expect("a packet around it").children.push(node);
}

fn attribute(line: &str, name: &str) -> Option<String> {
    let start = line.find(&format!(" {name}=\""))? + name.len() + 3;
    let end = line[start..].find('"')? + start;
    let text = &line[start..end];
    Some(text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&"))
}

#[test]
fn packets_are_read_as_trees() {
    let text = r#"<pdml version="0">
<packet>
  <proto name="sflow" showname="x" size="1" pos="2">
    <field name="" show="Flow sample, seq 7" size="1">
      <field name="a.b" showname="A &amp; B: 5" show="5"/>
    </field>
  </proto>
</packet>
</pdml>"#;
    let mut seen = 0;
    packets(text, |packet| {
        let group = &packet.protocol("sflow").unwrap().children[0];
        assert!(group.is_group());
        assert_eq!((group.title(), packet.find("a.b").unwrap().show.as_str()), ("Flow sample", "5"));
        seen += 1;
    });
    assert_eq!(seen, 1);
}
