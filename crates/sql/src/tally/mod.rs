//! Grouping with sums and counts, the work of topN, in place of DataFusion's own.
//!
//! With hundreds of thousands of groups a row costs what the cache misses cost, so `groups` keeps a group in one place and
//! `texts` gives texts numbers. [`TallyRule`] puts [`plan::Tally`] where a grouping has only columns and sums that it
//! knows; all others stay as they are. Answers are the same, and nulls are a group.
//!
//! Sums have 64 bits here. Where the largest numbers of all batches, as often as there are rows, are more than these hold,
//! the grouping is done once more as DataFusion does it, with 128 bits (`whole`).
//!
//! One operator does all stages of a grouping: a worker for each partition of its input (`work`), which keeps the
//! groups that it has met lately (`recent`), tables that merge the groups of all workers (`parts`), and the answer
//! out of these (`answer`).

mod answer;
mod groups;
mod key;
mod parts;
mod plan;
mod recent;
mod spare;
#[cfg(test)]
mod tests;
mod texts;
mod work;

use std::any::Any;
use std::sync::Arc;

use datafusion::common::DataFusionError;
use datafusion::config::ConfigOptions;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};

use self::plan::Tally;
use self::spare::Spare;

#[cfg(target_os = "linux")]
pub(crate) use self::spare::KEPT;

/// Keys or texts whose places are looked at together.
const TOGETHER: usize = 64;

/// How much is taken together.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Places for the groups that a worker has met lately, which stay in the processor's caches; a power of two.
    recent: usize,
    /// Rows after which a worker looks whether these places are of use.
    judged: usize,
    /// Words of the records of a part that a worker brings at once.
    brought: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { recent: 1 << 13, judged: 1 << 16, brought: 1 << 12 }
    }
}

/// The rows that a reader takes of a plan: of each partition the first by a column, up to a number.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    column: usize,
    rows: usize,
    is_descending: bool,
}

impl Wanted {
    /// For the input of a plan whose reader takes this, or for that of a sort.
    fn of_input(plan: &dyn Any, wanted: Option<Self>) -> Option<Self> {
        if let Some(sort) = plan.downcast_ref::<SortExec>() {
            let first = sort.expr().first();
            let column = first.expr.downcast_ref::<Column>()?.index();
            return Some(Self { column, rows: sort.fetch()?, is_descending: first.options.descending });
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let wanted = wanted?;
            let column = projection.expr().get(wanted.column)?.expr.downcast_ref::<Column>()?.index();
            return Some(Self { column, ..wanted });
        }
        // A row after the first of a partition is still after them when partitions are put together.
        wanted.filter(|_| plan.is::<CooperativeExec>() || plan.is::<CoalescePartitionsExec>())
    }
}

/// Comes after the rules that decide on stages and partitions.
#[derive(Debug, Default)]
pub(crate) struct TallyRule {
    sizes: Sizes,
    spare: Arc<Spare>,
}

impl PhysicalOptimizerRule for TallyRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        self.changed(plan, true, None)
    }

    fn name(&self) -> &str {
        "tally"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl TallyRule {
    /// A plan with tallies in it. `is_free`: its reader does not mind which group is in which of its partitions; a join
    /// does, as its other side has been divided by DataFusion's hashes. `wanted`: the rows that the reader takes.
    fn changed(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        is_free: bool,
        wanted: Option<Wanted>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let any: &dyn Any = plan.as_ref();
        let grouping = any.downcast_ref::<AggregateExec>();
        let is_free = is_free || plan.output_partitioning().partition_count() == 1;
        if is_free && let Some(tally) = Tally::of(&plan, wanted, self.sizes, &self.spare) {
            let input = self.changed(tally.input(), true, None)?;
            return Ok(Arc::new(CooperativeExec::new(Arc::new(tally.over(input)))));
        }
        // After the first ones rows are divided anew; the others leave them where they are.
        let is_free = any.is::<CoalescePartitionsExec>()
            || any.is::<SortPreservingMergeExec>()
            || any.is::<RepartitionExec>()
            || grouping.is_some_and(|grouping| *grouping.mode() == AggregateMode::Partial)
            || is_free
                && (any.is::<SortExec>()
                    || any.is::<ProjectionExec>()
                    || any.is::<FilterExec>()
                    || any.is::<GlobalLimitExec>()
                    || any.is::<LocalLimitExec>()
                    || any.is::<UnionExec>()
                    || any.is::<CooperativeExec>());
        let wanted = Wanted::of_input(any, wanted);
        let children = plan.children().into_iter();
        let children = children.map(|child| self.changed(Arc::clone(child), is_free, wanted));
        let children = children.collect::<Result<Vec<_>, _>>()?;
        replace_children_if_necessary(plan, children)
    }
}
