//! Lower convex hulls, and the two parallel lines between two hulls with the largest distance.
//!
//! Hulls follow Zhang, Liu and Xia (INFOCOM 2002) for one direction; the channel between both is the linear programme
//! of Moon, Skelly and Towsley (INFOCOM 1999) with one slope for both directions.

/// A point: a time, and a limit on the offset at that time.
pub(crate) type Point = (f64, f64);

/// Number of bisections of an interval of slopes: more than the resolution of a double needs.
const HALVINGS: usize = 60;

/// The lower convex hull of points, from left to right.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hull(Vec<Point>);

/// The region below the upper limits `most` and above the lower limits `least`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Between {
    /// The lower hull of the upper limits.
    most: Hull,
    /// The lower hull of the negated lower limits.
    least: Hull,
}

/// Two parallel lines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Channel {
    pub slope: f64,
    /// The upper line at x = 0.
    pub top: f64,
    /// The lower line at x = 0.
    pub bottom: f64,
}

/// The values at x = 0, and the slopes, of all lines between two limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Region {
    pub low: f64,
    pub high: f64,
    pub slope_low: f64,
    pub slope_high: f64,
}

impl Hull {
    /// Computes the hull of points in ascending order of x.
    pub fn of(points: impl Iterator<Item = Point>) -> Self {
        let mut hull: Vec<Point> = Vec::new();
        for point in points {
            while let [.., before, last] = hull[..] {
                if turns_left(before, last, point) {
                    break;
                }
                hull.pop();
            }
            match hull.last_mut() {
                Some(last) if last.0 == point.0 => last.1 = last.1.min(point.1),
                _ => hull.push(point),
            }
        }
        Self(hull)
    }

    /// Returns the x at which a line of this slope touches the hull from below, and the line's value at x = 0.
    fn touch(&self, slope: f64) -> Point {
        let rises = |pair: &[Point]| (pair[1].1 - pair[0].1) >= slope * (pair[1].0 - pair[0].0);
        let (mut low, mut high) = (0, self.0.len() - 1);
        while low < high {
            let middle = usize::midpoint(low, high);
            if rises(&self.0[middle..middle + 2]) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let (x, y) = self.0[low];
        (x, y - slope * x)
    }
}

fn turns_left(a: Point, b: Point, c: Point) -> bool {
    (b.0 - a.0) * (c.1 - a.1) > (b.1 - a.1) * (c.0 - a.0)
}

impl Between {
    /// Creates the region from upper and lower limits, each in ascending order of x and not empty.
    pub fn new(most: impl Iterator<Item = Point>, least: impl Iterator<Item = Point>) -> Self {
        Self { most: Hull::of(most), least: Hull::of(least.map(|(x, y)| (x, -y))) }
    }

    fn top(&self, slope: f64) -> f64 {
        self.most.touch(slope).1
    }

    fn bottom(&self, slope: f64) -> f64 {
        -self.least.touch(-slope).1
    }

    fn gap(&self, slope: f64) -> f64 {
        self.top(slope) - self.bottom(slope)
    }

    /// Returns the parallel lines with the largest distance whose slope is at most `steepest` either way.
    pub fn channel(&self, steepest: f64) -> Channel {
        // The gap is concave in the slope; it falls if the upper line touches to the right of the lower one.
        let falls = |slope| self.most.touch(slope).0 >= self.least.touch(-slope).0;
        let (low, high) = halve(-steepest, steepest, falls);
        let slope = f64::midpoint(low, high);
        Channel { slope, top: self.top(slope), bottom: self.bottom(slope) }
    }

    /// Returns the values at x = 0, and the slopes, of all lines between the limits; `None` if there is no such line.
    pub fn region(&self, steepest: f64) -> Option<Region> {
        let widest = self.channel(steepest);
        if widest.top < widest.bottom {
            return None;
        }
        let closes = |slope| self.gap(slope) < 0.0;
        let slope_high = if closes(steepest) { halve(widest.slope, steepest, closes).1 } else { steepest };
        let slope_low =
            if closes(-steepest) { halve(-steepest, widest.slope, |slope| !closes(slope)).0 } else { -steepest };
        // The values at 0 are concave (upper) and convex (lower) in the slope: extreme if the line touches at 0.
        let best_high = halve(slope_low, slope_high, |slope| self.most.touch(slope).0 >= 0.0);
        let best_low = halve(slope_low, slope_high, |slope| self.least.touch(-slope).0 <= 0.0);
        let high = self.top(best_high.0).max(self.top(best_high.1));
        let low = self.bottom(best_low.0).min(self.bottom(best_low.1));
        Some(Region { low, high, slope_low, slope_high })
    }
}

/// Bisects an interval to the point where `holds` becomes true; it is false at the first end and true at the second.
fn halve(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> (f64, f64) {
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    (low, high)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn points() -> impl Strategy<Value = Vec<Point>> {
        prop::collection::vec((-1000..1000_i32, 0..1000_i32), 2..40).prop_map(|mut points| {
            points.sort_unstable();
            points.into_iter().map(|(x, y)| (f64::from(x), f64::from(y))).collect()
        })
    }

    proptest! {
        #[test]
        fn a_touching_line_lies_below_all_points(points in points(), slope in -3.0..3.0_f64) {
            let height = Hull::of(points.iter().copied()).touch(slope).1;
            let least = points.iter().map(|(x, y)| y - slope * x).fold(f64::INFINITY, f64::min);
            prop_assert!((height - least).abs() < 1e-9);
        }

        #[test]
        fn every_line_between_the_limits_is_in_the_region(
            points in points(), slope in -2.0..2.0_f64, height in -50.0..50.0_f64, ahead in -500.0..500.0_f64,
        ) {
            let line = |x: f64| height + slope * x;
            let points: Vec<Point> = points.into_iter().map(|(x, y)| (x + ahead, y)).collect();
            let most = points.iter().map(|(x, y)| (*x, line(*x) + y));
            let least = points.iter().map(|(x, y)| (*x, line(*x) - 1000.0 + y));
            let between = Between::new(most, least);
            let region = between.region(10.0).expect("a line lies between");
            prop_assert!(region.low <= height + 1e-6 && height <= region.high + 1e-6, "{region:?} {height}");
            prop_assert!(region.slope_low <= slope + 1e-9 && slope <= region.slope_high + 1e-9, "{region:?}");
            let channel = between.channel(10.0);
            prop_assert!(channel.top - channel.bottom >= between.gap(slope) - 1e-6);
        }
    }
}
