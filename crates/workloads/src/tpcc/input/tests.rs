use super::*;

const NOW: u64 = 1_700_000_000_000_000;

fn terminal(warehouses: u16, home: u16) -> Terminal {
    let population = Population { scale: Scale::new(warehouses), seed: 1, loaded_at: 0 };
    let constants = Constants::of_run(population.constants(), &mut Random::new(2));
    Terminal::new(&population, constants, 3, 4, home)
}

/// Whether `count` of `of` is `percent`, give or take five deviations.
fn is_share(count: usize, of: usize, percent: f64) -> bool {
    let (of, share) = (of as f64, percent / 100.0);
    (count as f64 - of * share).abs() < 5.0 * (of * share * (1.0 - share)).sqrt()
}

#[test]
fn the_mix_is_the_specifications() {
    for mix in [Mix::Standard, Mix::Plus] {
        assert_eq!(Kind::ALL.map(|kind| kind.percent(mix)).iter().sum::<u64>(), 100);
        let mut terminal = terminal(2, 1).with_mix(mix);
        let kinds: Vec<Kind> = (0..100_000).map(|_| terminal.next(NOW).kind()).collect();
        for kind in Kind::ALL {
            let count = kinds.iter().filter(|found| **found == kind).count();
            let is_none = kind.percent(mix) == 0 && count == 0;
            assert!(is_none || is_share(count, kinds.len(), kind.percent(mix) as f64), "{kind}: {count}");
        }
    }
}

#[test]
fn spread_terminals_are_at_home_everywhere() {
    let mut terminal = terminal(3, 2).spread();
    let mut homes = [[0; 10]; 3];
    for _ in 0..30_000 {
        let Input::StockLevel(input) = terminal.next_of(Kind::StockLevel, NOW) else { panic!("no level") };
        homes[usize::from(input.warehouse) - 1][usize::from(input.district) - 1] += 1;
    }
    assert!(homes.iter().flatten().all(|count| is_share(*count, 30_000, 100.0 / 30.0)), "{homes:?}");
    let remote = (0..30_000).filter(|_| {
        let payment = terminal.payment(NOW);
        payment.customer_warehouse != payment.warehouse
    });
    assert!(is_share(remote.count(), 30_000, 15.0), "customers are as far from home as ever");
}

#[test]
fn new_orders_follow_their_clause() {
    let mut terminal = terminal(3, 2);
    let orders: Vec<NewOrder> = (0..50_000).map(|_| terminal.new_order(NOW)).collect();
    let unused = |order: &NewOrder| order.lines.last().unwrap().item == 100_001;
    assert!(is_share(orders.iter().filter(|order| unused(order)).count(), orders.len(), 1.0));
    let lines: Vec<Line> = orders.iter().flat_map(|order| order.lines.to_vec()).collect();
    let remote: Vec<&Line> = lines.iter().filter(|line| line.supply_warehouse != 2).collect();
    assert!(is_share(remote.len(), lines.len(), 1.0));
    assert!(is_share(remote.iter().filter(|line| line.supply_warehouse == 3).count(), remote.len(), 50.0));
    for order in &orders {
        assert!((5..=15).contains(&order.lines.len()));
        assert!((1..=10).contains(&order.district) && (1..=3_000).contains(&order.customer));
        let (last, others) = order.lines.split_last().unwrap();
        assert!(others.iter().all(|line| (1..=100_000).contains(&line.item)));
        assert!((1..=100_001).contains(&last.item));
        assert!(order.lines.iter().all(|line| (1..=10).contains(&line.quantity)));
    }
    assert!((9.9..10.1).contains(&(lines.len() as f64 / orders.len() as f64)));
}

#[test]
fn payments_follow_their_clause() {
    let mut terminal = terminal(3, 3);
    let payments: Vec<Payment> = (0..50_000).map(|_| terminal.payment(NOW)).collect();
    let remote: Vec<&Payment> = payments.iter().filter(|payment| payment.customer_warehouse != 3).collect();
    assert!(is_share(remote.len(), payments.len(), 15.0));
    let named = payments.iter().filter(|payment| matches!(payment.customer, Customer::LastName(_))).count();
    assert!(is_share(named, payments.len(), 60.0));
    assert!(payments.iter().all(|payment| (100..=500_000).contains(&payment.amount)));
    assert!(
        payments.iter().all(|payment| payment.customer_warehouse != 3 || payment.customer_district == payment.district)
    );
}

#[test]
fn one_warehouse_has_nothing_remote() {
    let mut terminal = terminal(1, 1);
    for _ in 0..5_000 {
        assert!(terminal.new_order(NOW).lines.iter().all(|line| line.supply_warehouse == 1));
        let payment = terminal.payment(NOW);
        assert_eq!(payment.customer_warehouse, 1);
    }
}

#[test]
fn ten_terminals_of_a_warehouse_have_ten_districts() {
    let population = Population { scale: Scale::new(10), seed: 1, loaded_at: 0 };
    let places: std::collections::HashSet<_> = (0..100)
        .map(|number| {
            let terminal = Terminal::new(&population, population.constants(), 1, number, (number % 10) as u16 + 1);
            (terminal.warehouse, terminal.district)
        })
        .collect();
    assert_eq!(places.len(), 100);
}

#[test]
fn requests_travel() {
    let mut terminal = terminal(2, 1).with_mix(Mix::Plus);
    for number in 0..1_000 {
        let mark = (number % 2 == 0).then_some(Mark { client: 9, sequence: number });
        let request = Request { mark, input: terminal.next(NOW) };
        let bytes = postcard::to_stdvec(&request).unwrap();
        assert!(bytes.len() < 200, "{}", bytes.len());
        assert_eq!(postcard::from_bytes::<Request>(&bytes).unwrap(), request);
    }
}

#[test]
fn orders_travel_in_few_bytes_and_strange_ones_too() {
    let mut terminal = terminal(300, 300);
    let (mut bytes, mut lines) = (0, 0);
    for _ in 0..1_000 {
        let order = terminal.new_order(NOW);
        bytes += postcard::to_stdvec(&order).unwrap().len();
        lines += order.lines.len();
    }
    // Three for a line, three more for one of 100; 8 for the time, about 8 for all else.
    assert!((2.9..3.2).contains(&((bytes - 16_000) as f64 / lines as f64)), "{bytes} bytes, {lines} lines");
    let first = terminal.new_order(NOW);
    for (item, supply_warehouse, quantity) in [(u32::MAX, 1, 1), (1 << 28, 0, 0), (1, 300, 16), (7, 7, 255), (0, 0, 15)]
    {
        let mut lines = List::new();
        assert!(lines.push(first.lines[0]) && lines.push(Line { item, supply_warehouse, quantity }));
        let order = NewOrder { lines, ..first };
        let bytes = postcard::to_stdvec(&order).unwrap();
        assert_eq!(postcard::from_bytes::<NewOrder>(&bytes).unwrap(), order);
    }
}
