//! Sampling rates that the job file knows better than the agents do: `sampling_rates: [192.0.2.1=4096]`.

use std::sync::Arc;

use thalweg_types::{Error, IpNetwork};

use super::xdr::Address;
use crate::source::datagrams::network;

/// Rates by agent; the first entry that an agent is in counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates(Arc<[(IpNetwork, u64)]>);

impl Rates {
    /// Reads `AGENT=RATE` texts, where the agent is an address or a network.
    ///
    /// # Errors
    /// A sentence with the text and the expected form.
    pub(crate) fn parse(texts: &[String]) -> Result<Self, Error> {
        let parse = |text: &String| {
            let wrong = || Error::user(format!("expected AGENT=RATE such as 192.0.2.1=4096, got {text:?}"));
            let (agent, rate) = text.split_once('=').ok_or_else(wrong)?;
            let rate = rate.trim().parse().ok().filter(|rate| (1..=u64::from(u32::MAX)).contains(rate));
            Ok((network(agent.trim())?, rate.ok_or_else(wrong)?))
        };
        texts.iter().map(parse).collect::<Result<Vec<_>, Error>>().map(|rates| Self(rates.into()))
    }

    pub(crate) fn of(&self, agent: Address) -> Option<u64> {
        if self.0.is_empty() {
            return None;
        }
        self.0.iter().find(|(network, _)| network.contains(agent)).map(|(_, rate)| *rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_entry_that_an_agent_is_in_counts() {
        let texts = ["192.0.2.1=10", "192.0.2.0/24 = 20", "2001:db8::/32=30"].map(str::to_owned);
        let rates = Rates::parse(&texts).unwrap();
        let of = |agent: &str| rates.of(thalweg_types::ip_octets(agent.parse().unwrap()));
        assert_eq!([of("192.0.2.1"), of("192.0.2.9"), of("192.0.3.1")], [Some(10), Some(20), None]);
        assert_eq!([of("2001:db8::7"), of("2001:db9::")], [Some(30), None]);
        for wrong in ["192.0.2.1", "192.0.2.1=0", "192.0.2.1=many", "here=1", "192.0.2.1=4294967296"] {
            let error = Rates::parse(&[wrong.to_owned()]).unwrap_err().to_string();
            assert!(
                error.contains("expected") && error.contains(wrong.split('=').next().unwrap()),
                "{error}"
            );
        }
    }
}
