//! Queries that can be stopped in the middle of a join.
//!
//! Operators give way between batches of their input. A join makes much of little: it may be busy for hours with two
//! batches. So joins are made to give way between batches of their output, and to look at a flag each time they
//! evaluate their condition: it may throw away all that they make.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DataFusionError, exec_err};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};

/// Whether a query has been given up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flag(Arc<AtomicBool>);

/// Gives a query up when it is dropped.
#[derive(Debug)]
pub(crate) struct Stop(pub(crate) Flag);

impl Drop for Stop {
    fn drop(&mut self) {
        // It conveys nothing else, so no order is needed.
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// A plan that can be stopped, in place of one. Comes after all rules.
///
/// # Errors
/// A join cannot be made anew.
pub(crate) fn interruptible(
    plan: Arc<dyn ExecutionPlan>,
    flag: &Flag,
) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    plan.transform_up(|plan| flag.changed(plan)).data()
}

impl Flag {
    fn changed(
        &self,
        plan: Arc<dyn ExecutionPlan>,
    ) -> Result<Transformed<Arc<dyn ExecutionPlan>>, DataFusionError> {
        let any: &dyn Any = plan.as_ref();
        let plan = if let Some(join) = any.downcast_ref::<NestedLoopJoinExec>() {
            match join.filter() {
                Some(filter) => self.nested_loops(join, self.watched(filter))?,
                None => plan,
            }
        } else if let Some(join) = any.downcast_ref::<HashJoinExec>() {
            match join.filter() {
                Some(filter) => join.builder().with_filter(Some(self.watched(filter))).build_exec()?,
                None => plan,
            }
        } else if any.is::<CrossJoinExec>() || any.is::<SortMergeJoinExec>() {
            plan
        } else {
            return Ok(Transformed::no(plan));
        };
        Ok(Transformed::yes(Arc::new(CooperativeExec::new(plan))))
    }

    /// The condition of a join, with the flag in it. A join without one gives out what it makes.
    fn watched(&self, filter: &JoinFilter) -> JoinFilter {
        let condition = Watched { flag: self.clone(), inner: Arc::clone(filter.expression()) };
        JoinFilter::new(Arc::new(condition), filter.column_indices().to_vec(), Arc::clone(filter.schema()))
    }

    fn nested_loops(
        &self,
        join: &NestedLoopJoinExec,
        filter: JoinFilter,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let (left, right) = (Arc::clone(join.left()), Arc::clone(join.right()));
        let join = NestedLoopJoinExecBuilder::new(left, right, *join.join_type())
            .with_projection_ref(join.projection().clone())
            .with_filter(Some(filter))
            .build()?;
        Ok(Arc::new(join))
    }
}

/// A condition that fails once the flag is set.
#[derive(Debug)]
struct Watched {
    flag: Flag,
    inner: Arc<dyn PhysicalExpr>,
}

impl PhysicalExpr for Watched {
    fn data_type(&self, schema: &Schema) -> Result<DataType, DataFusionError> {
        self.inner.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool, DataFusionError> {
        self.inner.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue, DataFusionError> {
        if self.flag.0.load(Ordering::Relaxed) {
            return exec_err!("the query was given up");
        }
        self.inner.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
        let inner = children.pop().unwrap_or_else(|| Arc::clone(&self.inner));
        Ok(Arc::new(Self { flag: self.flag.clone(), inner }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PartialEq for Watched {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.flag.0, &other.flag.0) && self.inner.eq(&other.inner)
    }
}

impl Eq for Watched {}

impl Hash for Watched {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}
