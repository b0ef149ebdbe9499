//! Experiments in virtual time, one program, which is linked once.

mod experiments;
mod keys;
mod leocc;
mod leotp;
mod leotp_goals;
mod ltp;
mod overload;
