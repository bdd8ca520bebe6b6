use super::*;
use crate::{Access, RegionKey};

fn offer(queue_pair: u32, sequence: u32, mtu: u32, address: u64) -> Offer {
    let region = RegionKey { length: 4096, access: Access::Verbs { address, key: 7 } };
    let bell = Bell::Verbs { queue_pair, sequence, gid: [1; 16], lid: 0, mtu };
    Offer { regions: vec![region], bell }
}

#[test]
fn impossible_offers_are_refused() {
    assert!(understand(&offer(17, 5, 3, 1 << 40)).is_ok());
    for bad in [offer(1 << 24, 5, 3, 0), offer(1, 1 << 24, 3, 0), offer(1, 5, 0, 0), offer(1, 5, 6, 0)] {
        assert!(matches!(understand(&bad), Err(OpenError::Missing { .. })));
    }
    assert!(matches!(understand(&offer(1, 5, 3, u64::MAX - 4094)), Err(OpenError::Missing { .. })));
    let mut mixed = offer(1, 5, 3, 0);
    mixed.regions[0].access = Access::Tcp;
    assert!(matches!(understand(&mixed), Err(OpenError::Missing { .. })));
}

#[test]
fn a_cut_link_is_noticed_within_the_patience() {
    for seconds in [1, 2, 5, 20, 600] {
        let patience = Duration::from_secs(seconds);
        let exponent = timeout(patience);
        let attempts = Duration::from_nanos(4096 << exponent) * (u32::from(RETRIES) + 1);
        assert!((14..=18).contains(&exponent) && attempts <= patience, "{patience:?}: {attempts:?}");
    }
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let config = FabricConfig { device: Some(("no such device".into(), 1, 0)), ..FabricConfig::default() };
    let error = Prepared::new(Vec::new(), &config).unwrap_err();
    assert!(matches!(error, OpenError::Missing { .. }), "{error:?}");
    assert!(error.to_string().starts_with("fabric verbs: "), "{error}");
}

#[test]
fn the_end_wakes_who_waits_for_the_beginning() {
    let link = Arc::new(Link::new().unwrap());
    assert_eq!(link.ready(Duration::ZERO), None);
    let waits = Arc::clone(&link);
    let waiting = std::thread::spawn(move || waits.ready(Duration::from_secs(60)));
    link.end();
    assert_eq!(waiting.join().unwrap(), Some(false));
    let link = Link::new().unwrap();
    assert!(link.receive(READY));
    assert_eq!(link.ready(Duration::ZERO), Some(true));
    assert!(!link.receive(READY), "it is sent once");
}
