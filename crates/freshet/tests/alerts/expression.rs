//! The part of PromQL that the rules use, over the samples of some scrapes.

use std::collections::BTreeMap;

/// What distinguishes a series, its name included as `__name__`.
pub type Labels = BTreeMap<String, String>;

/// What was scraped at one time, in seconds since 1970.
pub struct Scrape {
    pub at: f64,
    pub samples: Vec<(Labels, f64)>,
}

/// Where each series is, without its name, or one number.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    Number(f64),
    Series(BTreeMap<Labels, f64>),
}

/// Evaluates an expression at the last of these scrapes; a range covers all of them.
///
/// # Errors
/// Where it is none of the part that is known here.
pub fn evaluate(text: &str, scrapes: &[Scrape]) -> Result<Found, String> {
    let mut parser = Parser { rest: text, scrapes };
    let found = parser.comparison()?;
    if parser.blank().rest.is_empty() { Ok(found) } else { Err(format!("{:?} is not understood", parser.rest)) }
}

struct Parser<'a> {
    rest: &'a str,
    scrapes: &'a [Scrape],
}

fn compare(sign: &str) -> fn(f64, f64) -> bool {
    match sign {
        "==" => |a, b| a == b,
        ">" => |a, b| a > b,
        _ => |a, b| a < b,
    }
}

impl<'a> Parser<'a> {
    fn blank(&mut self) -> &mut Self {
        self.rest = self.rest.trim_start();
        self
    }

    fn takes(&mut self, sign: &str) -> bool {
        match self.blank().rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expects(&mut self, sign: &str) -> Result<(), String> {
        if self.takes(sign) { Ok(()) } else { Err(format!("{sign:?} is missing before {:?}", self.rest)) }
    }

    /// Up to the first byte that is not one of these.
    fn word(&mut self, is_part: fn(char) -> bool) -> &'a str {
        let end = self.blank().rest.find(|letter| !is_part(letter)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn name(&mut self) -> &'a str {
        self.word(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    }

    fn comparison(&mut self) -> Result<Found, String> {
        let left = self.sum()?;
        let Some(sign) = ["==", ">", "<"].into_iter().find(|sign| self.takes(sign)) else { return Ok(left) };
        let (right, holds) = (self.sum()?, compare(sign));
        let Found::Series(left) = left else { return Err("a number is compared".to_owned()) };
        let kept = left.into_iter().filter(|(labels, value)| match &right {
            Found::Number(right) => holds(*value, *right),
            Found::Series(right) => right.get(labels).is_some_and(|right| holds(*value, *right)),
        });
        Ok(Found::Series(kept.collect()))
    }

    fn sum(&mut self) -> Result<Found, String> {
        let left = self.product()?;
        if self.takes("-") { combined(left, self.product()?, |a, b| a - b) } else { Ok(left) }
    }

    fn product(&mut self) -> Result<Found, String> {
        let left = self.part()?;
        if self.takes("*") {
            return combined(left, self.part()?, |a, b| a * b);
        }
        if self.takes("/") { combined(left, self.part()?, |a, b| a / b) } else { Ok(left) }
    }

    fn part(&mut self) -> Result<Found, String> {
        if self.blank().rest.starts_with(|letter: char| letter.is_ascii_digit()) {
            let number = self.word(|letter| letter.is_ascii_digit() || letter == '.');
            return number.parse().map(Found::Number).map_err(|_| format!("{number} is no number"));
        }
        match self.name() {
            "time" => {
                self.expects("()")?;
                Ok(Found::Number(self.now().at))
            }
            "sum" => self.summed(),
            "rate" => self.grown(true),
            "increase" => self.grown(false),
            "histogram_quantile" => {
                self.expects("(")?;
                let Found::Number(share) = self.part()? else { return Err("the quantile is no number".to_owned()) };
                self.expects(",")?;
                let Found::Series(buckets) = self.part()? else { return Err("there are no buckets".to_owned()) };
                self.expects(")")?;
                Ok(Found::Series(quantiles(share, buckets)))
            }
            "" => Err(format!("nothing is understood of {:?}", self.rest)),
            metric => {
                let matches = self.matchers()?;
                Ok(Found::Series(select(self.now(), metric, &matches).collect()))
            }
        }
    }

    fn now(&self) -> &'a Scrape {
        self.scrapes.last().expect("something was scraped")
    }

    /// What stands in braces, if anything: a label, whether it is to be this, and what.
    fn matchers(&mut self) -> Result<Vec<(&'a str, bool, &'a str)>, String> {
        let mut all = Vec::new();
        if !self.takes("{") {
            return Ok(all);
        }
        while !self.takes("}") {
            let label = self.name();
            let is = !self.takes("!");
            self.expects("=\"")?;
            let (value, rest) = self.rest.split_once('"').ok_or("a label's value does not end")?;
            self.rest = rest;
            all.push((label, is, value));
            self.takes(",");
        }
        Ok(all)
    }

    fn summed(&mut self) -> Result<Found, String> {
        self.expects("by")?;
        self.expects("(")?;
        let mut by = Vec::new();
        while !self.takes(")") {
            by.push(self.name());
            self.takes(",");
        }
        self.expects("(")?;
        let of = self.comparison()?;
        self.expects(")")?;
        let Found::Series(of) = of else { return Err("a number is summed up".to_owned()) };
        let mut sums = BTreeMap::new();
        for (mut labels, value) in of {
            labels.retain(|label, _| by.contains(&label.as_str()));
            *sums.entry(labels).or_insert(0.0) += value;
        }
        Ok(Found::Series(sums))
    }

    /// By how much counters have grown over all scrapes, or over a second of them.
    fn grown(&mut self, each_second: bool) -> Result<Found, String> {
        self.expects("(")?;
        let metric = self.name();
        let matches = self.matchers()?;
        self.expects("[")?;
        self.word(|letter| letter.is_ascii_alphanumeric());
        self.expects("])")?;
        let (first, last) = (self.scrapes.first().expect("something was scraped"), self.now());
        let before: BTreeMap<_, _> = select(first, metric, &matches).collect();
        let took = if each_second { last.at - first.at } else { 1.0 };
        let known = select(last, metric, &matches)
            .filter_map(|(labels, value)| before.get(&labels).map(|before| (labels, (value - before) / took)));
        Ok(Found::Series(known.collect()))
    }
}

fn select<'a>(
    scrape: &'a Scrape,
    metric: &'a str,
    matches: &'a [(&str, bool, &str)],
) -> impl Iterator<Item = (Labels, f64)> + 'a {
    let is_one = move |labels: &Labels| {
        labels.get("__name__").is_some_and(|name| name == metric)
            && matches.iter().all(|(label, is, value)| (labels.get(*label).map_or("", String::as_str) == *value) == *is)
    };
    scrape.samples.iter().filter(move |(labels, _)| is_one(labels)).map(|(labels, value)| {
        let mut labels = labels.clone();
        labels.remove("__name__");
        (labels, *value)
    })
}

fn combined(left: Found, right: Found, with: fn(f64, f64) -> f64) -> Result<Found, String> {
    Ok(match (left, right) {
        (Found::Number(left), Found::Number(right)) => Found::Number(with(left, right)),
        (Found::Series(left), Found::Number(right)) => {
            Found::Series(left.into_iter().map(|(labels, left)| (labels, with(left, right))).collect())
        }
        (Found::Number(left), Found::Series(right)) => {
            Found::Series(right.into_iter().map(|(labels, right)| (labels, with(left, right))).collect())
        }
        (Found::Series(left), Found::Series(right)) => {
            let both = left.into_iter().filter_map(|(labels, left)| {
                let right = *right.get(&labels)?;
                Some((labels, with(left, right)))
            });
            Found::Series(both.collect())
        }
    })
}

/// As Prometheus has it: within a bucket values are taken as evenly spread.
fn quantiles(share: f64, buckets: BTreeMap<Labels, f64>) -> BTreeMap<Labels, f64> {
    let mut histograms: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    for (mut labels, count) in buckets {
        let bound = labels.remove("le").map_or(f64::NAN, |bound| bound.trim_start_matches('+').parse().unwrap());
        histograms.entry(labels).or_default().push((bound, count));
    }
    let of = |mut buckets: Vec<(f64, f64)>| {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let rank = share * buckets.last()?.1;
        let place = buckets.iter().position(|(_, count)| *count >= rank)?;
        let (from, below) = place.checked_sub(1).map_or((0.0, 0.0), |before| buckets[before]);
        let (to, count) = buckets[place];
        (count > below)
            .then(|| if to.is_finite() { from + (to - from) * (rank - below) / (count - below) } else { from })
    };
    histograms.into_iter().filter_map(|(labels, buckets)| Some((labels, of(buckets)?))).collect()
}

/// The samples of a scrape's text, with these labels added.
pub fn samples(text: &str, more: &[(&str, &str)]) -> Vec<(Labels, f64)> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| sample(line, more)).collect()
}

fn sample(line: &str, more: &[(&str, &str)]) -> (Labels, f64) {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let owned = |(label, value): (&str, &str)| (label.to_owned(), value.to_owned());
    let mut all: Labels = more.iter().copied().map(owned).collect();
    all.insert("__name__".to_owned(), name.to_owned());
    let mut rest = labels.trim_end_matches('}');
    while let Some((label, after)) = rest.split_once("=\"") {
        // No value here has a quotation mark.
        let (value, after) = after.split_once('"').unwrap();
        all.insert(label.trim_start_matches(',').to_owned(), value.to_owned());
        rest = after;
    }
    (all, value.parse().unwrap())
}

#[test]
fn expressions_have_the_values_that_prometheus_gives_them() {
    let scrape = |at, text| Scrape { at, samples: samples(text, &[("job", "f")]) };
    let first = scrape(100.0, "a_total{x=\"1\"} 5\na_total{x=\"2\"} 7\n");
    let last = scrape(
        110.0,
        "a_total{x=\"1\"} 25\na_total{x=\"2\"} 7\nb{x=\"1\"} 4\nh_bucket{le=\"1\"} 0\nh_bucket{le=\"2\"} 98\n\
         h_bucket{le=\"+Inf\"} 100\n# EOF\n",
    );
    let scrapes = [first, last];
    let one = |text: &str| match evaluate(text, &scrapes).unwrap() {
        Found::Series(series) => series.into_values().collect(),
        Found::Number(number) => vec![number],
    };
    for (text, expected) in [
        ("rate(a_total[5m])", vec![2.0, 0.0]),
        ("rate(a_total[5m]) > 1", vec![2.0]),
        ("increase(a_total{x!=\"1\"}[1h]) == 0", vec![0.0]),
        ("sum by (job) (a_total)", vec![32.0]),
        ("sum by (job) (rate(a_total[5m])) > 0.1 * sum by (job) (b)", vec![2.0]),
        ("a_total / b", vec![6.25]),
        ("b - time() < 0", vec![-106.0]),
        ("b{x=\"2\"} == 4", vec![]),
        ("histogram_quantile(0.49, sum by (job, le) (h_bucket)) < 2", vec![1.5]),
        ("histogram_quantile(0.99, h_bucket)", vec![2.0]),
    ] {
        assert_eq!(one(text), expected, "{text}");
    }
    for wrong in ["", "a_total >", "1 == 1", "sum(a_total)", "b{x=\"2", "rate(b)", "b b"] {
        assert!(evaluate(wrong, &scrapes).is_err(), "{wrong}");
    }
}
