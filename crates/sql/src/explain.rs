//! A plan as EXPLAIN shows it: one tree of steps, from which text and structured formats are made.

/// A step of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// What the step is, in text.
    pub title: String,
    /// What kind of step it is, in structured formats.
    pub node: String,
    /// What else is known of it.
    pub facts: Vec<Fact>,
    /// What it took, if it was run and measured.
    pub measured: Option<Measured>,
    /// The steps that it reads from.
    pub children: Vec<Step>,
    /// Queries within it, with their names. They are not among those it reads from.
    pub subplans: Vec<(String, Step)>,
}

/// Something that is known of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// As structured formats call it.
    pub name: &'static str,
    /// The fact itself, as text.
    pub value: String,
    /// How text shows it.
    pub shown: Shown,
}

/// How text shows something that is known of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// In the step's title.
    InTitle,
    /// By its name alone.
    Name,
    /// On a line with its name and value.
    Line,
}

/// What a step took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// The rows that it gave, of all loops together.
    pub rows: u64,
    /// How often it was begun, if that is known.
    pub loops: Option<u64>,
    /// The time for its own work, in milliseconds, without the steps that it reads from.
    pub own_time: Option<f64>,
}

impl Step {
    /// A step of a kind that is called the same in text and in structured formats.
    pub fn new(node: &str) -> Self {
        Self::titled(node, node)
    }

    /// A step of a kind, with its title in text.
    pub fn titled(node: &str, title: impl Into<String>) -> Self {
        Self { node: node.to_owned(), title: title.into(), ..Self::default() }
    }

    /// Adds something that is known.
    #[must_use]
    pub fn fact(mut self, name: &'static str, value: impl Into<String>, shown: Shown) -> Self {
        self.facts.push(Fact { name, value: value.into(), shown });
        self
    }

    /// Adds a step that it reads from.
    #[must_use]
    pub fn over(mut self, child: Self) -> Self {
        self.children.push(child);
        self
    }

    /// Takes the times away, here and below.
    pub fn forget_times(&mut self) {
        if let Some(measured) = &mut self.measured {
            measured.own_time = None;
        }
        let subplans = self.subplans.iter_mut().map(|(_, step)| step);
        self.children.iter_mut().chain(subplans).for_each(Self::forget_times);
    }

    /// As text, a line for each step, outermost first.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        self.describe(0, &mut lines);
        lines
    }

    fn describe(&self, depth: usize, lines: &mut Vec<String>) {
        let mut line = match depth {
            0 => self.title.clone(),
            depth => format!("{}->  {}", " ".repeat(6 * depth - 4), self.title),
        };
        if let Some(Measured { rows, loops, own_time }) = self.measured {
            line += &format!("  (rows={rows}");
            line += &loops.map_or_else(String::new, |loops| format!(" loops={loops}"));
            line += &own_time.map_or_else(String::new, |time| format!(" time={time:.3} ms"));
            line.push(')');
        }
        lines.push(line);
        let indent = " ".repeat(6 * depth + 2);
        for Fact { name, value, shown } in &self.facts {
            match shown {
                Shown::InTitle => {}
                Shown::Name => lines.push(format!("{indent}{name}")),
                Shown::Line => lines.push(format!("{indent}{name}: {value}")),
            }
        }
        self.children.iter().for_each(|child| child.describe(depth + 1, lines));
        for (name, step) in &self.subplans {
            lines.push(format!("{}{name}", " ".repeat(6 * depth)));
            step.describe(depth + 1, lines);
        }
    }
}
