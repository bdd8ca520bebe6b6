//! Plots as PNG.
//!
//! Lines come from plotters' bitmap backend. Letters do not: it would need the system's fonts, or a
//! font file and a crate that reads it. They come as pixels from a crate that brings them, in two
//! sizes.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use plotters::backend::BitMapBackend;
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
    text_anchor::{HPos, VPos},
};

use freshet::Failure;

/// A bitmap with letters.
pub(crate) struct Raster<'a>(BitMapBackend<'a>);

impl<'a> Raster<'a> {
    /// On a buffer of three bytes for each pixel.
    pub(crate) fn on(buffer: &'a mut [u8], size: (u32, u32)) -> Self {
        Self(BitMapBackend::with_buffer(buffer, size))
    }
}

type Drawn<'a> = Result<(), DrawingErrorKind<<BitMapBackend<'a> as DrawingBackend>::ErrorType>>;

/// The size of letters that is next to what is asked for.
fn height(style: &impl BackendTextStyle) -> RasterHeight {
    if style.size() < 18.0 { RasterHeight::Size16 } else { RasterHeight::Size20 }
}

fn extent(text: &str, height: RasterHeight) -> (i32, i32) {
    let letters = i32::try_from(text.chars().count()).unwrap_or(i32::MAX / 64);
    (letters * get_raster_width(FontWeight::Regular, height) as i32, height.val() as i32)
}

impl<'a> DrawingBackend for Raster<'a> {
    type ErrorType = <BitMapBackend<'a> as DrawingBackend>::ErrorType;

    fn get_size(&self) -> (u32, u32) {
        self.0.get_size()
    }

    fn ensure_prepared(&mut self) -> Drawn<'a> {
        self.0.ensure_prepared()
    }

    fn present(&mut self) -> Drawn<'a> {
        self.0.present()
    }

    fn draw_pixel(&mut self, point: BackendCoord, color: BackendColor) -> Drawn<'a> {
        self.0.draw_pixel(point, color)
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn<'a> {
        self.0.draw_line(from, to, style)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        upper_left: BackendCoord,
        bottom_right: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Drawn<'a> {
        self.0.draw_rect(upper_left, bottom_right, style, fill)
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Drawn<'a> {
        let size = height(style);
        let (width, tall) = extent(text, size);
        let left = match style.anchor().h_pos {
            HPos::Left => 0,
            HPos::Center => -width / 2,
            HPos::Right => -width,
        };
        let top = match style.anchor().v_pos {
            VPos::Top => 0,
            VPos::Center => -tall / 2,
            VPos::Bottom => -tall,
        };
        let (turned, color) = (style.transform(), style.color());
        let (right_edge, bottom_edge) = self.get_size();
        let letter_width = get_raster_width(FontWeight::Regular, size) as i32;
        for (number, letter) in (0..).zip(text.chars()) {
            let Some(pixels) =
                get_raster(letter, FontWeight::Regular, size).or_else(|| get_raster('?', FontWeight::Regular, size))
            else {
                continue;
            };
            for (row, line) in (0..).zip(pixels.raster()) {
                for (column, shade) in (0..).zip(line.iter().copied()).filter(|(_, shade)| *shade > 0) {
                    let (x, y) = turned.transform(left + number * letter_width + column, top + row);
                    let (x, y) = (at.0 + x, at.1 + y);
                    let inside = |edge: u32, place: i32| u32::try_from(place).is_ok_and(|place| place < edge);
                    if inside(right_edge, x) && inside(bottom_edge, y) {
                        let alpha = color.alpha * f64::from(shade) / 255.0;
                        self.0.draw_pixel((x, y), BackendColor { alpha, rgb: color.rgb })?;
                    }
                }
            }
        }
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Self::ErrorType>> {
        let (width, tall) = extent(text, height(style));
        Ok((width.unsigned_abs(), tall.unsigned_abs()))
    }
}

/// Pixels of three bytes as a PNG file.
pub(crate) fn encode(pixels: &[u8], (width, height): (u32, u32)) -> Result<Vec<u8>, Failure> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(file)
}
