//! A plan written as text, JSON, YAML or XML. Each is laid out as PostgreSQL does.

use freshet_sql::{
    explain::{Fact, Step},
    types::json::write_string,
};

use super::Format;

/// All that EXPLAIN says.
#[derive(Clone, Debug)]
pub struct Document {
    /// The outermost step.
    pub plan: Step,
    /// The time for planning, in milliseconds.
    pub planning: Option<f64>,
    /// The time for the run, in milliseconds.
    pub execution: Option<f64>,
}

/// What the structured formats share.
enum Tree {
    Text(String),
    Number(String),
    Group(Vec<(&'static str, Tree)>),
    /// What XML calls each, and all.
    List(&'static str, Vec<Tree>),
}

/// The rows that show it: a line each as text, one in all other formats.
pub fn write(document: &Document, format: Format) -> Vec<String> {
    match format {
        Format::Text => {
            let mut lines = document.plan.lines();
            lines.extend(document.planning.map(|time| format!("Planning Time: {time:.3} ms")));
            lines.extend(document.execution.map(|time| format!("Execution Time: {time:.3} ms")));
            lines
        }
        Format::Json => {
            let mut out = "[\n  ".to_owned();
            json(&tree(document), 1, &mut out);
            vec![out + "\n]"]
        }
        Format::Yaml => {
            let mut out = "- ".to_owned();
            yaml(&tree(document), 1, &mut out);
            vec![out]
        }
        Format::Xml => {
            let mut out = "<explain xmlns=\"http://www.postgresql.org/2009/explain\">\n".to_owned();
            xml("Query", &tree(document), 1, &mut out);
            vec![out + "</explain>"]
        }
    }
}

fn tree(document: &Document) -> Tree {
    let mut all = vec![("Plan", step(&document.plan, None))];
    let time = |time: f64| Tree::Number(format!("{time:.3}"));
    all.extend(document.planning.map(|planning| ("Planning Time", time(planning))));
    all.extend(document.execution.map(|execution| ("Execution Time", time(execution))));
    Tree::Group(all)
}

fn step(one: &Step, place: Option<(&str, Option<&str>)>) -> Tree {
    let mut all = vec![("Node Type", Tree::Text(one.node.clone()))];
    if let Some((relationship, name)) = place {
        all.push(("Parent Relationship", Tree::Text(relationship.to_owned())));
        all.extend(name.map(|name| ("Subplan Name", Tree::Text(name.to_owned()))));
    }
    all.extend(one.facts.iter().map(|Fact { name, value, .. }| (*name, Tree::Text(value.clone()))));
    if let Some(measured) = one.measured {
        all.push(("Actual Rows", Tree::Number(measured.rows.to_string())));
        all.extend(measured.loops.map(|loops| ("Actual Loops", Tree::Number(loops.to_string()))));
        all.extend(measured.own_time.map(|time| ("Own Time", Tree::Number(format!("{time:.3}")))));
    }
    let subplans = one.subplans.iter().map(|(name, below)| step(below, Some(("InitPlan", Some(name)))));
    let children = one.children.iter().enumerate();
    let children = children.map(|(n, below)| step(below, Some((if n == 0 { "Outer" } else { "Inner" }, None))));
    let plans: Vec<_> = subplans.chain(children).collect();
    if !plans.is_empty() {
        all.push(("Plans", Tree::List("Plan", plans)));
    }
    Tree::Group(all)
}

fn indent(depth: usize, out: &mut String) {
    out.push('\n');
    out.push_str(&"  ".repeat(depth));
}

fn json(tree: &Tree, depth: usize, out: &mut String) {
    match tree {
        Tree::Text(text) => write_string(text, out),
        Tree::Number(number) => out.push_str(number),
        Tree::Group(entries) => {
            out.push('{');
            for (n, (name, value)) in entries.iter().enumerate() {
                out.push_str(if n == 0 { "" } else { "," });
                indent(depth + 1, out);
                write_string(name, out);
                out.push_str(": ");
                json(value, depth + 1, out);
            }
            indent(depth, out);
            out.push('}');
        }
        Tree::List(_, items) => {
            out.push('[');
            for (n, item) in items.iter().enumerate() {
                out.push_str(if n == 0 { "" } else { "," });
                indent(depth + 1, out);
                json(item, depth + 1, out);
            }
            indent(depth, out);
            out.push(']');
        }
    }
}

/// The place where it begins is indented already.
fn yaml(tree: &Tree, depth: usize, out: &mut String) {
    match tree {
        Tree::Text(text) => write_string(text, out),
        Tree::Number(number) => out.push_str(number),
        Tree::Group(entries) => {
            for (n, (name, value)) in entries.iter().enumerate() {
                if n > 0 {
                    indent(depth, out);
                }
                out.push_str(name);
                out.push(':');
                match value {
                    Tree::Text(_) | Tree::Number(_) => out.push(' '),
                    Tree::Group(_) | Tree::List(..) => indent(depth + 1, out),
                }
                yaml(value, depth + 1, out);
            }
        }
        Tree::List(_, items) => {
            for (n, item) in items.iter().enumerate() {
                if n > 0 {
                    indent(depth, out);
                }
                out.push_str("- ");
                yaml(item, depth + 1, out);
            }
        }
    }
}

/// An element on lines of its own.
fn xml(name: &str, tree: &Tree, depth: usize, out: &mut String) {
    let (tag, margin) = (name.replace(' ', "-"), "  ".repeat(depth));
    out.push_str(&format!("{margin}<{tag}>"));
    match tree {
        Tree::Text(text) | Tree::Number(text) => escape(text, out),
        Tree::Group(entries) => {
            out.push('\n');
            entries.iter().for_each(|(name, value)| xml(name, value, depth + 1, out));
            out.push_str(&margin);
        }
        Tree::List(each, items) => {
            out.push('\n');
            items.iter().for_each(|item| xml(each, item, depth + 1, out));
            out.push_str(&margin);
        }
    }
    out.push_str(&format!("</{tag}>\n"));
}

fn escape(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\r' => out.push_str("&#x0d;"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use freshet_sql::explain::{Measured, Shown};

    use super::*;

    fn document() -> Document {
        let scan = Step::titled("Scan", "Scan on t").fact("Filter", "a < \"b\"", Shown::Name);
        let mut plan = Step::new("Limit").over(scan);
        plan.measured = Some(Measured { rows: 2, loops: None, own_time: None });
        plan.subplans.push(("First 1".to_owned(), Step::new("Result")));
        Document { plan, planning: None, execution: Some(0.5) }
    }

    #[test]
    fn text_has_a_line_for_each_step() {
        let lines = write(&document(), Format::Text);
        let expected = [
            "Limit  (rows=2)",
            "  ->  Scan on t",
            "        Filter",
            "First 1",
            "  ->  Result",
            "Execution Time: 0.500 ms",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn json_is_laid_out_as_in_postgresql() {
        let expected = r#"[
  {
    "Plan": {
      "Node Type": "Limit",
      "Actual Rows": 2,
      "Plans": [
        {
          "Node Type": "Result",
          "Parent Relationship": "InitPlan",
          "Subplan Name": "First 1"
        },
        {
          "Node Type": "Scan",
          "Parent Relationship": "Outer",
          "Filter": "a < \"b\""
        }
      ]
    },
    "Execution Time": 0.500
  }
]"#;
        assert_eq!(write(&document(), Format::Json), [expected]);
    }

    #[test]
    fn yaml_is_laid_out_as_in_postgresql() {
        let expected = r#"- Plan:
    Node Type: "Limit"
    Actual Rows: 2
    Plans:
      - Node Type: "Result"
        Parent Relationship: "InitPlan"
        Subplan Name: "First 1"
      - Node Type: "Scan"
        Parent Relationship: "Outer"
        Filter: "a < \"b\""
  Execution Time: 0.500"#;
        assert_eq!(write(&document(), Format::Yaml), [expected]);
    }

    #[test]
    fn xml_is_laid_out_as_in_postgresql() {
        let expected = r#"<explain xmlns="http://www.postgresql.org/2009/explain">
  <Query>
    <Plan>
      <Node-Type>Limit</Node-Type>
      <Actual-Rows>2</Actual-Rows>
      <Plans>
        <Plan>
          <Node-Type>Result</Node-Type>
          <Parent-Relationship>InitPlan</Parent-Relationship>
          <Subplan-Name>First 1</Subplan-Name>
        </Plan>
        <Plan>
          <Node-Type>Scan</Node-Type>
          <Parent-Relationship>Outer</Parent-Relationship>
          <Filter>a &lt; "b"</Filter>
        </Plan>
      </Plans>
    </Plan>
    <Execution-Time>0.500</Execution-Time>
  </Query>
</explain>"#;
        assert_eq!(write(&document(), Format::Xml), [expected]);
    }
}
