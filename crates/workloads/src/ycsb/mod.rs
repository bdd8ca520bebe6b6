//! YCSB (Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC
//! 2010): its core workloads A to F, and the 70/30 mix of SiloR (section 6.1).

pub mod input;
pub mod mix;
