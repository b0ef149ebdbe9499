//! A change of a path, as an operator orders it.

use serde::{Deserialize, Serialize};

/// A change of one path, as a client of the control socket writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathChange {
    /// Name of the path.
    pub path: String,
    /// Name of the peer; needed where several have a path of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Out of service, or in service again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<bool>,
    /// Price per byte, or `configured`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
    /// Greatest rate of our direction, as `5mbit`, or `none`, or `configured`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Bytes of a month, as `50GB`, or `none`, or `configured`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monthly: Option<String>,
    /// What the month has used so far, as `12GB`; always stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<String>,
    /// Hours, with commas between them, or `always`, or `configured`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<String>,
    /// What is ordered of the path outlives the gateway.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
}
