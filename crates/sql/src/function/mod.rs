//! SQL functions over addresses.
//!
//! | function | result |
//! |---|---|
//! | `ip(text)` | the address; null if the text is not an address |
//! | `ip_text(address)` | `10.1.2.3`, `2001:db8::1` |
//! | `prefix(address, len4 [, len6])` | `10.1.0.0/16`; `len6` is 48 unless given |
//! | `network(address, len4 [, len6])` | the address with its host bits cleared |
//! | `in_network(address, '10.0.0.0/8')` | whether it is in it; no address is in a network of the other version |
//! | `family(address)` | 4 or 6 |
//!
//! An address is FixedSizeBinary(16), of version 4 as `::ffff:a.b.c.d`; a text is taken for the address that it is.

mod address;
mod apply;
mod literal;

use std::sync::Arc;

use arrow_schema::DataType;
use datafusion::common::{DataFusionError, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

pub(crate) use literal::{AddressLiterals, AddressPlanner};

/// Type of a column of addresses.
pub(crate) const ADDRESS: DataType = DataType::FixedSizeBinary(16);

/// Bits that are kept of addresses of version 6 where nothing else is said.
const LEN6: i64 = 48;

/// All of them, to be registered.
pub(crate) fn all() -> Vec<Arc<ScalarUDF>> {
    [Kind::Ip, Kind::IpText, Kind::Prefix, Kind::Network, Kind::InNetwork, Kind::Family]
        .map(|kind| Arc::new(ScalarUDF::from(Function::new(kind))))
        .to_vec()
}

/// `ip_text(address)` as an expression.
fn ip_text(address: Expr) -> Expr {
    ScalarUDF::from(Function::new(Kind::IpText)).call(vec![address])
}

/// `family(address)` as an expression.
fn family(address: Expr) -> Expr {
    ScalarUDF::from(Function::new(Kind::Family)).call(vec![address])
}

/// `prefix(address, len4, len6)` as an expression.
pub(crate) fn prefix(address: Expr, len4: i64, len6: i64) -> Expr {
    use datafusion::prelude::lit;
    ScalarUDF::from(Function::new(Kind::Prefix)).call(vec![address, lit(len4), lit(len6)])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Ip,
    IpText,
    Prefix,
    Network,
    InNetwork,
    Family,
}

/// One of the functions.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    kind: Kind,
    signature: Signature,
}

impl Function {
    fn new(kind: Kind) -> Self {
        Self { kind, signature: Signature::user_defined(Volatility::Immutable) }
    }

    /// How it is called, for errors.
    fn usage(&self) -> &'static str {
        match self.kind {
            Kind::Ip => "ip(text)",
            Kind::IpText => "ip_text(address)",
            Kind::Prefix => "prefix(address, len4 [, len6])",
            Kind::Network => "network(address, len4 [, len6])",
            Kind::InNetwork => "in_network(address, '10.0.0.0/8')",
            Kind::Family => "family(address)",
        }
    }
}

fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null)
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.usage().split('(').next().unwrap_or_default()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType, DataFusionError> {
        Ok(match self.kind {
            Kind::Ip | Kind::Network => ADDRESS,
            Kind::IpText | Kind::Prefix => DataType::Utf8View,
            Kind::InNetwork => DataType::Boolean,
            Kind::Family => DataType::Int64,
        })
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>, DataFusionError> {
        let mut taken = Vec::with_capacity(given.len());
        let counts = match self.kind {
            Kind::Ip | Kind::IpText | Kind::Family => 1..=1,
            Kind::Prefix | Kind::Network => 2..=3,
            Kind::InNetwork => 2..=2,
        };
        if !counts.contains(&given.len()) {
            return plan_err!("{} called with {} arguments", self.usage(), given.len());
        }
        for (place, kind) in given.iter().enumerate() {
            taken.push(match (place, self.kind) {
                (0, _) if is_text(kind) => DataType::Utf8View,
                (0, _) if *kind == ADDRESS => ADDRESS,
                (1, Kind::InNetwork) if is_text(kind) => DataType::Utf8View,
                (1.., Kind::Prefix | Kind::Network) if kind.is_integer() || *kind == DataType::Null => {
                    DataType::Int64
                }
                _ => return plan_err!("{} called with {kind} as argument {}", self.usage(), place + 1),
            });
        }
        Ok(taken)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        apply::apply(self.kind, &args)
    }
}
