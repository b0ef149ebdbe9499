//! The log against a model.
