#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| starhaul_system_tests::fuzz::dtn_tcpcl(data));
