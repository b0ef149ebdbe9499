//! Nothing: no feature of this project asks for it.
