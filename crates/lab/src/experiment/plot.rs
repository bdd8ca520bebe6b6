//! Plots: curves of what was measured, and of what papers state.
//!
//! Measured: full marks, solid lines, and whiskers from the lowest round to the highest. Stated by
//! a paper, or wanted: hollow marks and dashed lines.

use plotters::{
    coord::{
        Shift,
        ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter},
        types::RangedCoordf64,
    },
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::raster::{Raster, encode};
use freshet::Failure;

/// A point of a curve, with the range of the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// Marks and a line between them.
    Measured,
    /// A line.
    Fine,
    /// Hollow marks and a dashed line.
    Stated,
    /// A dashed line from edge to edge.
    Level,
}

/// A curve.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    label: String,
    color: usize,
    style: Style,
    joined: bool,
    pub(crate) points: Vec<Point>,
}

impl Curve {
    pub(crate) fn measured(label: &str, color: usize, points: Vec<Point>) -> Self {
        Self { label: label.to_owned(), color, style: Style::Measured, joined: true, points }
    }

    /// Many points.
    pub(crate) fn fine(label: &str, color: usize, points: impl Iterator<Item = (f64, f64)>) -> Self {
        Self { label: label.to_owned(), color, style: Style::Fine, joined: true, points: points.map(exactly).collect() }
    }

    /// Points that a paper states.
    pub(crate) fn stated(label: &str, color: usize, points: &[(f64, f64)]) -> Self {
        let points = points.iter().copied().map(exactly).collect();
        Self { label: label.to_owned(), color, style: Style::Stated, joined: true, points }
    }

    /// A bound that a paper states, or that is wanted.
    pub(crate) fn level(label: &str, color: usize, y: f64) -> Self {
        Self { label: label.to_owned(), color, style: Style::Level, joined: true, points: vec![exactly((f64::NAN, y))] }
    }

    /// Marks alone: between them is nothing.
    pub(crate) fn apart(mut self) -> Self {
        self.joined = false;
        self
    }

    /// The same at other places.
    pub(crate) fn at(mut self, place: impl Fn(f64) -> f64) -> Self {
        for point in &mut self.points {
            point.x = place(point.x);
        }
        self
    }
}

fn exactly((x, y): (f64, f64)) -> Point {
    Point { x, y, low: y, high: y }
}

/// Places on an axis of names, with something for each.
pub(crate) fn places_of<T>(things: impl IntoIterator<Item = T>) -> Vec<(f64, T)> {
    (0..).map(f64::from).zip(things).collect()
}

/// Curves over the same axes.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x: String,
    pub(crate) y: String,
    /// What is written at the horizontal axis, and where; numbers where they fall when there are
    /// none.
    pub(crate) ticks: Vec<(f64, String)>,
    /// Whether the vertical axis begins at zero.
    pub(crate) from_zero: bool,
    /// Parts of the horizontal axis over which the ground is grey.
    pub(crate) shaded: Vec<(f64, f64)>,
    pub(crate) curves: Vec<Curve>,
}

impl Panel {
    /// Over whole numbers, from zero.
    pub(crate) fn over_numbers(title: &str, x: &str, y: &str, curves: Vec<Curve>) -> Self {
        let mut places: Vec<f64> = curves.iter().flat_map(|curve| &curve.points).map(|point| point.x).collect();
        places.retain(|x| x.is_finite());
        places.sort_by(f64::total_cmp);
        places.dedup();
        let ticks = places.into_iter().map(|x| (x, x.to_string())).collect();
        Self {
            title: title.to_owned(),
            x: x.to_owned(),
            y: y.to_owned(),
            ticks,
            from_zero: true,
            shaded: Vec::new(),
            curves,
        }
    }

    fn x_range(&self) -> (f64, f64) {
        let points = self.curves.iter().flat_map(|curve| &curve.points).map(|point| point.x);
        range(points.chain(self.ticks.iter().map(|(x, _)| *x)), if self.ticks.is_empty() { 0.0 } else { 0.25 })
    }

    fn y_range(&self) -> (f64, f64) {
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        let (low, high) = range(points.flat_map(|point| [point.y, point.low, point.high]), 0.0);
        let room = ((high - low) * 0.08).max(high.abs() * 1e-3);
        if self.from_zero { (0.0, (high * 1.08).max(1e-9)) } else { (low - room, high + room) }
    }
}

/// The range of those that are numbers, wider by a margin at both ends, and never empty.
fn range(numbers: impl Iterator<Item = f64>, margin: f64) -> (f64, f64) {
    let (low, high) = numbers
        .filter(|number| number.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), number| (low.min(number), high.max(number)));
    let (low, high) = if low.is_finite() { (low - margin, high + margin) } else { (0.0, 1.0) };
    if high - low < 1e-9 { (low - 0.5, high + 0.5) } else { (low, high) }
}

/// Distinguishable on white, for people who cannot tell red from green, too (after Okabe and Ito).
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
    RGBColor(0, 0, 0),
];

const WIDTH: u32 = 1120;
const TITLE: u32 = 56;
const PANEL: u32 = 400;
/// Of the width, for what the curves are.
const LEGEND: u32 = 350;
/// Letters in a line of it.
const LETTERS: usize = 33;

fn size(panels: &[Panel]) -> (u32, u32) {
    (WIDTH, TITLE + PANEL * panels.len() as u32)
}

/// The panels below one another, as SVG.
pub(crate) fn svg(title: &str, panels: &[Panel]) -> Result<String, Failure> {
    let mut text = String::new();
    draw(SVGBackend::with_string(&mut text, size(panels)).into_drawing_area(), title, panels)?;
    Ok(text)
}

/// The same as PNG.
pub(crate) fn png(title: &str, panels: &[Panel]) -> Result<Vec<u8>, Failure> {
    let (width, height) = size(panels);
    let mut pixels = vec![255; width as usize * height as usize * 3];
    draw(Raster::on(&mut pixels, (width, height)).into_drawing_area(), title, panels)?;
    encode(&pixels, (width, height))
}

fn failed(cause: impl std::fmt::Display) -> Failure {
    Failure::new(format!("cannot draw the plot: {cause}"))
}

fn text_style(size: u32, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font()).color(&BLACK).pos(Pos::new(horizontal, vertical))
}

/// Breaks a text into lines.
pub(crate) fn lines(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn draw<B: DrawingBackend>(area: DrawingArea<B, Shift>, title: &str, panels: &[Panel]) -> Result<(), Failure> {
    area.fill(&WHITE).map_err(failed)?;
    let (top, rest) = area.split_vertically(TITLE);
    for (number, line) in (0..).zip(lines(title, 104).iter().take(2)) {
        top.draw_text(line, &text_style(20, HPos::Left, VPos::Top), (16, 6 + number * 24)).map_err(failed)?;
    }
    for (area, panel) in rest.split_evenly((panels.len().max(1), 1)).iter().zip(panels) {
        let (chart, legend) = area.split_horizontally(WIDTH - LEGEND);
        draw_panel(&chart, panel)?;
        draw_legend(&legend, panel)?;
    }
    area.present().map_err(failed)
}

/// A horizontal axis with marks where they are wanted.
struct Across<'p> {
    inner: RangedCoordf64,
    ticks: &'p [(f64, String)],
}

impl Ranged for Across<'_> {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.inner.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if self.ticks.is_empty() {
            self.inner.key_points(hint)
        } else {
            self.ticks.iter().map(|(place, _)| *place).collect()
        }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.inner.range()
    }
}

impl ValueFormatter<f64> for Across<'_> {
    fn format_ext(&self, x: &f64) -> String {
        match self.ticks.iter().find(|(place, _)| (place - x).abs() < 1e-9) {
            Some((_, text)) => text.clone(),
            None => axis(*x, self.inner.range().end - self.inner.range().start),
        }
    }
}

fn draw_panel<B: DrawingBackend>(area: &DrawingArea<B, Shift>, panel: &Panel) -> Result<(), Failure> {
    let ((left, right), (low, high)) = (panel.x_range(), panel.y_range());
    let across = Across { inner: (left..right).into(), ticks: &panel.ticks };
    let mut builder = ChartBuilder::on(area);
    builder.margin(10).margin_left(14);
    builder.caption(&panel.title, text_style(20, HPos::Left, VPos::Top));
    builder.x_label_area_size(48).y_label_area_size(80);
    let mut chart = builder.build_cartesian_2d(across, low..high).map_err(failed)?;
    let grey = |(from, to): &(f64, f64)| Rectangle::new([(*from, low), (*to, high)], BLACK.mix(0.12).filled());
    chart.draw_series(panel.shaded.iter().map(grey)).map_err(failed)?;
    let write = |y: &f64| axis(*y, high - low);
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(&panel.x).y_desc(&panel.y).y_label_formatter(&write).y_labels(8);
    mesh.axis_desc_style(("sans-serif", 16)).label_style(("sans-serif", 16));
    mesh.bold_line_style(BLACK.mix(0.15)).light_line_style(TRANSPARENT).draw().map_err(failed)?;
    for curve in &panel.curves {
        draw_curve(&mut chart, curve, (left, right))?;
    }
    Ok(())
}

/// A number at an axis that is so long: as many decimals as tell its marks apart.
fn axis(number: f64, length: f64) -> String {
    // There are about eight marks.
    let decimals = (8.0 / length.max(1e-12)).log10().ceil().clamp(0.0, 6.0) as usize;
    format!("{number:.decimals$}")
}

fn draw_curve<B: DrawingBackend>(
    chart: &mut ChartContext<'_, B, Cartesian2d<Across<'_>, RangedCoordf64>>,
    curve: &Curve,
    (left, right): (f64, f64),
) -> Result<(), Failure> {
    let color = COLORS[curve.color % COLORS.len()];
    let places: Vec<(f64, f64)> =
        curve.points.iter().map(|point| (point.x, point.y)).filter(|(_, y)| y.is_finite()).collect();
    match curve.style {
        Style::Measured => {
            for Point { x, low, high, .. } in &curve.points {
                chart
                    .draw_series([PathElement::new([(*x, *low), (*x, *high)], color.mix(0.6).stroke_width(1))])
                    .map_err(failed)?;
            }
            if curve.joined {
                chart.draw_series(LineSeries::new(places.iter().copied(), color.stroke_width(2))).map_err(failed)?;
            }
            chart.draw_series(places.iter().map(|place| Circle::new(*place, 5, color.filled()))).map_err(failed)?;
        }
        Style::Fine => {
            chart.draw_series(LineSeries::new(places.iter().copied(), color.stroke_width(1))).map_err(failed)?;
        }
        Style::Stated => {
            if curve.joined {
                let dashed = DashedLineSeries::new(places.iter().copied(), 6, 5, color.stroke_width(1));
                chart.draw_series(dashed).map_err(failed)?;
            }
            chart.draw_series(places.iter().map(|place| Circle::new(*place, 5, WHITE.filled()))).map_err(failed)?;
            chart
                .draw_series(places.iter().map(|place| Circle::new(*place, 5, color.stroke_width(2))))
                .map_err(failed)?;
        }
        Style::Level => {
            for (_, y) in places {
                let dashed = DashedLineSeries::new([(left, y), (right, y)], 6, 5, color.stroke_width(1));
                chart.draw_series(dashed).map_err(failed)?;
            }
        }
    }
    Ok(())
}

fn draw_legend<B: DrawingBackend>(area: &DrawingArea<B, Shift>, panel: &Panel) -> Result<(), Failure> {
    let mut y = 44;
    for curve in &panel.curves {
        let color = COLORS[curve.color % COLORS.len()];
        let middle = (22, y + 8);
        let dash = |from: i32, to: i32, width: u32| {
            PathElement::new([(from, middle.1), (to, middle.1)], color.stroke_width(width))
        };
        match curve.style {
            Style::Measured => {
                if curve.joined {
                    area.draw(&dash(4, 40, 2)).map_err(failed)?;
                }
                area.draw(&Circle::new(middle, 5, color.filled())).map_err(failed)?;
            }
            Style::Fine => area.draw(&dash(4, 40, 2)).map_err(failed)?,
            Style::Stated | Style::Level => {
                for from in [4, 15, 26, 37].into_iter().filter(|_| curve.joined) {
                    area.draw(&dash(from, from + 5, 1)).map_err(failed)?;
                }
                if curve.style == Style::Stated {
                    area.draw(&Circle::new(middle, 5, WHITE.filled())).map_err(failed)?;
                    area.draw(&Circle::new(middle, 5, color.stroke_width(2))).map_err(failed)?;
                }
            }
        }
        for line in lines(&curve.label, LETTERS) {
            area.draw_text(&line, &text_style(16, HPos::Left, VPos::Top), (50, y)).map_err(failed)?;
            y += 19;
        }
        y += 6;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panels() -> Vec<Panel> {
        let points = vec![Point { x: 1.0, y: 2.0, low: 1.0, high: 3.0 }, Point { x: 2.0, y: 5.0, low: 4.0, high: 5.5 }];
        let numbers = vec![
            Curve::measured("here <&> \"there\"", 0, points),
            Curve::stated("stated", 1, &[(1.0, 3.0), (2.0, f64::NAN)]),
            Curve::level("wanted", 2, 4.0),
        ];
        let time = vec![Curve::fine("over time", 3, (0..100).map(|step| (f64::from(step), 0.9)))];
        vec![
            Panel::over_numbers("Title", "standbys", "k/s", numbers),
            Panel {
                ticks: Vec::new(),
                from_zero: false,
                shaded: vec![(10.0, 20.0)],
                ..Panel::over_numbers("Time", "s", "%", time)
            },
            Panel::over_numbers("Nothing was measured", "x", "y", Vec::new()),
        ]
    }

    #[test]
    fn an_image_has_ink_of_every_curve() {
        let file = png("All of it", &panels()).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((frame.width, frame.height), (WIDTH, TITLE + 3 * PANEL));
        for RGBColor(red, green, blue) in &COLORS[..4] {
            assert!(pixels.chunks(3).any(|pixel| pixel == [*red, *green, *blue]), "no ink of {red}, {green}, {blue}");
        }
        let is_grey = |pixel: &&[u8]| (224..=225).contains(&pixel[0]) && pixel[0] == pixel[1] && pixel[1] == pixel[2];
        let grey = pixels.chunks(3).filter(is_grey).count();
        assert!(grey > 1000, "{grey} pixels are shaded");
    }

    #[test]
    fn a_drawing_has_its_texts_escaped() {
        let text = svg("All of it", &panels()).unwrap();
        assert!(text.contains("&lt;&amp;&gt;") && text.contains("over time") && text.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn axes_are_distinguished() {
        assert_eq!(
            (axis(12.0, 40.0), axis(0.25, 1.5), axis(99.125, 0.05)),
            ("12".into(), "0.2".into(), "99.125".into())
        );
        assert_eq!(lines("a bc def", 4), ["a bc", "def"]);
    }
}
