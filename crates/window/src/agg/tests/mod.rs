//! Every aggregate against a plain recomputation from the elements that are in the window.

mod model;
mod naive;
mod rig;
mod tables;
