//! Grouping with sums and counts, the work of topN, in place of DataFusion's own.
//!
//! With hundreds of thousands of groups a row costs what the cache misses cost, so `groups` keeps a group in one place and
//! `texts` gives texts numbers. [`TallyRule`] puts [`plan::Tally`] where a grouping has only columns and sums that these
//! know; all others stay as they are. Answers are the same: sums of integers wrap around, and nulls are a group.
//!
//! Policy when full: a first stage that has [`plan::MOST_GROUPS`] or no more memory hands out what it has and begins anew,
//! as the stage behind it adds up what comes twice. A last stage that gets no memory fails.

mod groups;
mod key;
mod plan;
#[cfg(test)]
mod tests;
mod texts;

use std::any::Any;
use std::sync::Arc;

use datafusion::common::DataFusionError;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coop::CooperativeExec;

use self::plan::Tally;

/// Comes after the rules that decide on stages and partitions.
#[derive(Debug)]
pub(crate) struct TallyRule;

impl PhysicalOptimizerRule for TallyRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let changed = |plan: Arc<dyn ExecutionPlan>| {
            let any: &dyn Any = plan.as_ref();
            let tally = any.downcast_ref::<AggregateExec>().and_then(Tally::of);
            Ok(match tally {
                Some(tally) => Transformed::yes(Arc::new(CooperativeExec::new(Arc::new(tally))) as Arc<_>),
                None => Transformed::no(plan),
            })
        };
        plan.transform_up(changed).data()
    }

    fn name(&self) -> &str {
        "tally"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
