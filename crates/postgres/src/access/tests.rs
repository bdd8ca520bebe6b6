use std::{
    env,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use super::*;
use crate::Encryption;

/// A client: how it comes, and the role and database that it names.
struct Case {
    origin: Origin,
    encrypted: bool,
    certificate: Option<&'static str>,
    user: &'static str,
    database: &'static str,
}

/// Members: ann of staff and of sales, by staff; bob of sales. Root is a superuser, and a member of
/// nothing.
fn is_member(user: &str, of: &str) -> bool {
    let all = ["ann", "bob", "root", "staff", "sales"];
    all.contains(&user)
        && all.contains(&of)
        && (user == of || matches!((user, of), ("ann", "staff" | "sales") | ("bob" | "staff", "sales")))
}

fn decide(rules: &AccessRules, case: &Case) -> Result<Required, Report> {
    let encryption = Encryption { version: "TLSv1.3", cipher: "TLS_AES_256_GCM_SHA384", bits: 256 };
    let encryption = case.encrypted.then_some(encryption);
    let peer = Peer { origin: case.origin, encryption, certificate: case.certificate.map(Arc::from) };
    let member = |of: &str| is_member(case.user, of);
    rules.decide(&Claim { peer: &peer, user: case.user, database: case.database, is_member: &member })
}

fn host(address: &str) -> Case {
    let address: IpAddr = address.parse().unwrap();
    Case {
        origin: Origin::Host(SocketAddr::from((address, 4000))),
        encrypted: false,
        certificate: None,
        user: "ann",
        database: "shop",
    }
}

fn tls(address: &str) -> Case {
    Case { encrypted: true, ..host(address) }
}

fn local(uid: u32) -> Case {
    Case { origin: Origin::Local { uid }, ..host("127.0.0.1") }
}

fn rules(text: &str) -> AccessRules {
    AccessRules::parse(text).unwrap_or_else(|faults| panic!("{text}: {faults:?}"))
}

/// Whether the line decides the case, or leaves it to the next one.
fn matches(line: &str, case: &Case) -> bool {
    let verdict = decide(&rules(&format!("{line} reject")), case).unwrap_err();
    let message = verdict.message();
    assert!(verdict.state() == SqlState::INVALID_AUTHORIZATION && verdict.severity() == crate::Severity::Fatal);
    match message {
        it if it.starts_with("pg_hba.conf rejects connection for ") => true,
        it if it.starts_with("no pg_hba.conf entry for ") => false,
        other => panic!("{other}"),
    }
}

/// Section 20.1 of PostgreSQL's documentation, field by field.
#[test]
fn rules_match_as_postgresql_documents() {
    let named = |user, database| Case { user, database, ..host("192.0.2.7") };
    let cases: Vec<(&str, Case, bool)> = vec![
        // The kind of connection.
        ("local all all", local(7), true),
        ("local all all", host("127.0.0.1"), false),
        ("host all all all", local(7), false),
        ("host all all all", host("192.0.2.7"), true),
        ("host all all all", tls("192.0.2.7"), true),
        ("hostssl all all all", host("192.0.2.7"), false),
        ("hostssl all all all", tls("192.0.2.7"), true),
        ("hostnossl all all all", host("192.0.2.7"), true),
        ("hostnossl all all all", tls("192.0.2.7"), false),
        ("hostnogssenc all all all", tls("192.0.2.7"), true),
        // The database.
        ("host shop all all", named("ann", "shop"), true),
        ("host shop all all", named("ann", "Shop"), false),
        ("host store,shop all all", named("ann", "shop"), true),
        ("host store, shop all all", named("ann", "shop"), true),
        ("host sameuser all all", named("ann", "ann"), true),
        ("host sameuser all all", named("ann", "shop"), false),
        ("host samerole all all", named("ann", "staff"), true),
        ("host samerole all all", named("ann", "sales"), true),
        ("host samerole all all", named("ann", "ann"), true),
        ("host samegroup all all", named("bob", "sales"), true),
        ("host samerole all all", named("bob", "staff"), false),
        ("host samerole all all", named("root", "staff"), false),
        ("host samerole all all", named("ghost", "ghost"), false),
        ("host replication all all", named("ann", "replication"), false),
        ("host \"replication\" all all", named("ann", "replication"), true),
        ("host all all all", named("ann", "replication"), true),
        ("host \"all\" all all", named("ann", "shop"), false),
        ("host \"all\" all all", named("ann", "all"), true),
        ("host \"sameuser\" all all", named("ann", "ann"), false),
        ("host \"a b\",\"c,d\" all all", named("ann", "a b"), true),
        ("host \"a b\",\"c,d\" all all", named("ann", "c,d"), true),
        ("host \"a\"\"b\" all all", named("ann", "a\"b"), true),
        ("host sh\"op\" all all", named("ann", "shop"), true),
        // The role.
        ("host all ann all", named("ann", "shop"), true),
        ("host all ann all", named("Ann", "shop"), false),
        ("host all bob,ann all", named("ann", "shop"), true),
        ("host all +staff all", named("ann", "shop"), true),
        ("host all +sales all", named("ann", "shop"), true),
        ("host all +ann all", named("ann", "shop"), true),
        ("host all +staff all", named("bob", "shop"), false),
        ("host all +staff all", named("root", "shop"), false),
        ("host all \"+staff\" all", named("ann", "shop"), false),
        ("host all \"+staff\" all", named("+staff", "shop"), true),
        ("host all +\"staff\" all", named("ann", "shop"), true),
        ("host all \"all\" all", named("ann", "shop"), false),
        ("host all +ghosts all", named("ann", "shop"), false),
        // The address.
        ("host all all 192.0.2.0/24", host("192.0.2.7"), true),
        ("host all all 192.0.2.99/24", host("192.0.2.7"), true),
        ("host all all 192.0.2.0/24", host("192.0.3.7"), false),
        ("host all all 192.0.2.7/32", host("192.0.2.7"), true),
        ("host all all 192.0.2.7/32", host("192.0.2.8"), false),
        ("host all all 192.0.2.6/31", host("192.0.2.7"), true),
        ("host all all 192.0.2.0 255.255.255.0", host("192.0.2.7"), true),
        ("host all all 192.0.2.0 255.255.255.0", host("192.0.3.7"), false),
        ("host all all 192.0.2.7 255.0.255.255", host("192.9.2.7"), true),
        ("host all all 0.0.0.0/0", host("198.51.100.1"), true),
        ("host all all 0.0.0.0/0", host("2001:db8::1"), false),
        ("host all all ::/0", host("2001:db8::1"), true),
        ("host all all ::/0", host("198.51.100.1"), false),
        ("host all all 2001:db8::/32", host("2001:db8:ffff::1"), true),
        ("host all all 2001:db8::/32", host("2001:db9::1"), false),
        ("host all all 2001:db8:: ffff:ffff::", host("2001:db8::5"), true),
        ("host all all ::1/128", host("::1"), true),
        ("host all all 127.0.0.1/32", host("127.0.0.1"), true),
        // A client by IPv4 at a socket that takes both.
        ("host all all 192.0.2.0/24", host("::ffff:192.0.2.7"), true),
        ("host all all samehost", host("127.0.0.1"), true),
        ("host all all samehost", host("203.0.113.200"), false),
        ("host all all samenet", host("127.9.9.9"), true),
        ("host all all samenet", host("203.0.113.200"), false),
        // How a line is written.
        ("  host\tall  all   all ", host("192.0.2.7"), true),
        ("\"host\" all all all", host("192.0.2.7"), true),
    ];
    for (line, case, expected) in &cases {
        let Case { origin, encrypted, user, database, .. } = case;
        assert_eq!(matches(line, case), *expected, "{line}: {origin:?} {encrypted} {user} {database}");
    }
    assert!(cases.len() > 60);
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = rules(
        "# a comment\n\nhost all bob all reject # no bob\nhost shop all 10.0.0.0/8 trust\nhost all all all scram-sha-256\n",
    );
    assert_eq!(rules.len(), 3);
    assert_eq!(decide(&rules, &host("10.1.1.1")), Ok(Required::Nothing));
    assert_eq!(decide(&rules, &host("11.1.1.1")), Ok(Required::Password));
    let bob = decide(&rules, &Case { user: "bob", ..host("10.1.1.1") }).unwrap_err();
    assert_eq!(
        bob.message(),
        "pg_hba.conf rejects connection for host \"10.1.1.1\", user \"bob\", database \"shop\", no encryption"
    );
    let none = decide(&rules, &local(0)).unwrap_err();
    assert_eq!(
        none.message(),
        "no pg_hba.conf entry for host \"[local]\", user \"ann\", database \"shop\", no encryption"
    );
    let secured = decide(&AccessRules::parse("").unwrap(), &tls("::1")).unwrap_err();
    assert!(secured.message().ends_with("host \"::1\", user \"ann\", database \"shop\", SSL encryption"));
}

#[test]
fn without_a_file_only_the_servers_own_user_needs_no_password() {
    let rules = AccessRules::default();
    let own = local::own_uid();
    assert_eq!(decide(&rules, &local(own)), Ok(Required::Nothing));
    assert_eq!(decide(&rules, &local(0)), Ok(Required::Nothing));
    assert_eq!(decide(&rules, &local(own + 1)), Ok(Required::Password));
    for address in ["127.0.0.1", "::1", "192.0.2.7"] {
        assert_eq!(decide(&rules, &host(address)), Ok(Required::Password));
        assert_eq!(decide(&rules, &tls(address)), Ok(Required::Password));
    }
}

#[test]
fn peer_compares_the_names_of_user_and_role() {
    let rules = rules("local all all peer\n");
    assert_eq!(decide(&rules, &Case { user: "root", ..local(0) }), Ok(Required::Nothing));
    let refused = decide(&rules, &local(0)).unwrap_err();
    assert_eq!(refused.message(), "Peer authentication failed for user \"ann\"");
    // A user without a name.
    assert!(decide(&rules, &local(4_000_000_000)).is_err());
}

#[test]
fn certificates_are_asked_for_where_the_rule_demands_it() {
    let with = |certificate| Case { certificate, ..tls("192.0.2.7") };
    let cert = rules("hostssl all all all cert\n");
    assert!(cert.asks_for_certificates() && !AccessRules::default().asks_for_certificates());
    assert_eq!(decide(&cert, &with(Some("ann"))), Ok(Required::Nothing));
    let message = |rules, case: &Case| decide(rules, case).unwrap_err().message().to_owned();
    assert_eq!(message(&cert, &with(Some("bob"))), "certificate authentication failed for user \"ann\"");
    assert_eq!(message(&cert, &with(Some(""))), "certificate authentication failed for user \"ann\"");
    assert_eq!(message(&cert, &with(None)), "connection requires a valid client certificate");

    let signed = rules("hostssl all all all scram-sha-256 clientcert=verify-ca\n");
    assert_eq!(decide(&signed, &with(Some("bob"))), Ok(Required::Password));
    assert_eq!(message(&signed, &with(None)), "connection requires a valid client certificate");
    let own = rules("hostssl all all all scram-sha-256 clientcert=verify-full clientname=CN\n");
    assert_eq!(decide(&own, &with(Some("ann"))), Ok(Required::Password));
    assert_eq!(message(&own, &with(Some("bob"))), "certificate authentication failed for user \"ann\"");
}

#[test]
fn what_is_wrong_is_reported_with_its_line() {
    let fault = |text: &str| match AccessRules::parse(text) {
        Err(faults) => faults.into_iter().map(|Fault { line, what }| (line, what)).collect::<Vec<_>>(),
        Ok(rules) => panic!("{text}: {rules:?}"),
    };
    let cases = [
        ("hosts all all all trust", "invalid connection type \"hosts\""),
        ("host", "end-of-line before database specification"),
        ("host all", "end-of-line before role specification"),
        ("host all all", "end-of-line before IP address specification"),
        ("local all all", "end-of-line before authentication method"),
        ("host all all 10.0.0.1", "end-of-line before netmask specification"),
        ("host all all 10.0.0.1 trust", "invalid IP mask \"trust\""),
        ("host all all 10.0.0.0/33 trust", "invalid CIDR mask in address \"10.0.0.0/33\""),
        ("host all all 10.0.0.0/+8 trust", "invalid CIDR mask"),
        ("host all all 10.0.0.0/ trust", "invalid CIDR mask"),
        ("host all all ::/129 trust", "invalid CIDR mask"),
        ("host all all 10.0.0.0 ffff:: trust", "IP address and mask do not match"),
        ("host all all db.example trust", "host names are not looked up"),
        ("host all all .example trust", "host names are not looked up"),
        ("host all all 10.0.0.0/8,11.0.0.0/8 trust", "multiple values specified for host address"),
        ("host all all all md5", "use scram-sha-256"),
        ("host all all all ldap", "not offered here"),
        ("host all all all truth", "invalid authentication method \"truth\""),
        ("host all all all peer", "peer authentication is only supported on local sockets"),
        ("host all all all owner", "owner authentication is only supported on local sockets"),
        ("host all all all cert", "cert authentication is only supported on hostssl connections"),
        ("host all all all trust clientcert=verify-ca", "clientcert can only be configured for \"hostssl\" rows"),
        ("hostssl all all all cert clientcert=verify-ca", "clientcert only accepts \"verify-full\""),
        ("hostssl all all all trust clientcert=1", "invalid value for clientcert"),
        ("hostssl all all all cert clientname=DN", "common name"),
        ("local all all peer map=crew", "names of users are not mapped here"),
        ("local all all trust loud", "authentication option not in name=value format: loud"),
        ("local all all trust loud=yes", "unrecognized authentication option name: \"loud\""),
        ("local @names all trust", "names are not read from other files"),
        ("local all /^a.*$ trust", "regular expressions are not understood here"),
        ("local \"\" all trust", "a name is empty"),
        ("local all + trust", "a name is empty"),
        ("local \"all all trust", "a quote is not closed"),
        ("hostgssenc all all all trust", "GSSAPI"),
        ("include other.conf", "other files are not included"),
    ];
    for (text, expected) in cases {
        let faults = fault(&format!("# first\nlocal all all trust\n{text}\n"));
        assert!(faults.len() == 1 && faults[0].0 == 3 && faults[0].1.contains(expected), "{text}: {faults:?}");
    }
    assert_eq!(fault("local all\nlocal all all trust\nhost\n").iter().map(|it| it.0).collect::<Vec<_>>(), [1, 3]);
    // A line that continues counts where it begins.
    assert_eq!(fault("local all \\\nall\nhost\n").iter().map(|it| it.0).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(rules("local all \\\n all trust\n").len(), 1);

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access");
    assert!(AccessRules::read(&path).unwrap_err().to_string().contains("cannot read the access file"));
    fs::write(&path, "local all all trust\nhost all\n").unwrap();
    let message = AccessRules::read(&path).unwrap_err().to_string();
    assert!(message.contains("access:2: end-of-line before role specification"), "{message}");
}

#[test]
fn own_networks_are_those_of_the_system() {
    let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 127.0.0.0/8 2 0 2\n           |-- 127.0.0.0\n              /8 host LOCAL\n           |-- 127.0.0.1\n              /32 host LOCAL\n        |-- 192.0.2.2\n           /32 host LOCAL\n        |-- 192.0.2.255\n           /32 link BROADCAST\n";
    let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\neth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\neth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n";
    let own = networks_v4(trie, routes);
    let is_own = |address: &str| own.iter().any(|network| network.own == Some(address.parse().unwrap()));
    let is_near = |address: &str| own.iter().any(|network| network.range.matches(address.parse().unwrap()));
    assert!(is_own("127.0.0.1") && is_own("192.0.2.2") && !is_own("192.0.2.255") && !is_own("127.0.0.0"));
    assert!(is_near("192.0.2.77") && is_near("127.3.3.3") && !is_near("192.0.3.1") && !is_near("8.8.8.8"));
    let own = networks_v6("fe80000000000000001c42fffe000001 04 40 20 80     eth0\nbroken\n");
    assert_eq!(own.len(), 1);
    assert!(own[0].range.matches("fe80::9".parse().unwrap()) && !own[0].range.matches("fe81::9".parse().unwrap()));
}

/// Every file is either understood or refused, and one that is understood decides.
#[test]
fn any_text_is_rules_or_faults() {
    const PIECES: &[&str] = &[
        "local",
        "host",
        "hostssl",
        "hostnossl",
        "all",
        "sameuser",
        "samerole",
        "replication",
        "ann",
        "+staff",
        "\"",
        ",",
        "#",
        "\\\n",
        "\n",
        " ",
        "\t",
        "10.0.0.0/8",
        "::1/128",
        "10.0.0.0",
        "255.0.0.0",
        "/",
        "samehost",
        "samenet",
        "trust",
        "reject",
        "scram-sha-256",
        "cert",
        "peer",
        "owner",
        "clientcert=verify-full",
        "map=x",
        "=",
        "@f",
        "/^x",
        "\0",
        "\u{e4}",
        "\u{2028}",
        "\r",
        "999",
        "ffff::/999999999999",
    ];
    let seed = env::var("FRESHET_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64));
    let mut state = seed | 1;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let cases = [host("10.1.2.3"), tls("::1"), local(0), local(77)];
    let mut understood = 0;
    for round in 0..20_000 {
        let mut text = String::new();
        // Every second one looks like a real file.
        for _ in 0..random(12) {
            text += PIECES[random(PIECES.len())];
            if round % 2 == 0 {
                text.push(' ');
            }
        }
        if round % 4 == 0 {
            text = format!("host all all all trust\n{text}");
        }
        let went = catch_unwind(AssertUnwindSafe(|| match AccessRules::parse(&text) {
            Ok(rules) => {
                cases.iter().for_each(|case| drop(decide(&rules, case)));
                1
            }
            Err(faults) => {
                assert!(!faults.is_empty() && faults.iter().all(|fault| fault.line > 0 && !fault.what.is_empty()));
                0
            }
        }));
        understood += went.unwrap_or_else(|_| panic!("FRESHET_SEED={seed}: {text:?}"));
    }
    assert!(understood > 100, "FRESHET_SEED={seed}: {understood}");
}

/// Clients are compared in canonical form. Rules have to be, too: one of these would match no
/// client.
#[test]
fn networks_of_mapped_addresses_are_networks_of_ipv4() {
    for line in
        ["host all all ::ffff:10.0.0.0/104", "host all all ::ffff:10.0.0.0 ffff:ffff:ffff:ffff:ffff:ffff:ff00:0"]
    {
        assert!(matches(line, &host("10.200.3.4")) && matches(line, &host("::ffff:10.1.2.3")), "{line}");
        assert!(!matches(line, &host("11.0.0.1")) && !matches(line, &host("2001:db8::a00:1")), "{line}");
    }
    assert!(matches("host all all ::ffff:10.1.2.3/128", &host("10.1.2.3")));
    // Shorter ones are of IPv6 addresses.
    assert!(!matches("host all all ::/0", &host("10.1.2.3")) && matches("host all all ::/0", &host("2001:db8::1")));
}
