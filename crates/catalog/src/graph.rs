//! A graph of which service publishes to which.
//!
//! Publishers are on the left, readers on the right, grouped as in the catalog. Every pair is one
//! line whose width and number show how many events it carries. Each line has its own port at both
//! ends, so numbers do not overlap. Hovering over a service shows only its own lines. Services that
//! read everything would hide the rest and are listed below instead.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use chapar_core::catalog::Catalog;

const WIDTH: f64 = 1240.0;
/// Where the lines begin and end.
const LEFT: f64 = 264.0;
const RIGHT: f64 = 976.0;
const NODE_WIDTH: f64 = 240.0;
const TOP: f64 = 84.0;
const PORT: f64 = 14.0;
const NODE_GAP: f64 = 8.0;
/// Room for a group's name above its services.
const GROUP_HEAD: f64 = 30.0;

/// The graph as SVG, in the colours of the reader's light or dark theme.
pub fn svg(catalog: &Catalog) -> String {
    let edges = edges(catalog);
    let groups = groups(catalog, &edges);
    let left = place(&groups, |service| edges.keys().filter(|edge| edge.0 == service).count());
    let right = place(&groups, |service| edges.keys().filter(|edge| edge.1 == service).count());
    let bottom = left.values().chain(right.values()).map(|n| n.y + n.height);
    let height = bottom.fold(TOP, f64::max) + 64.0;

    let alone = alone(&groups);
    let mut svg = String::new();
    let title = escape(&format!("Who publishes to whom in {}", catalog.system.title));
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n\
         <title>{title}</title>\n<style>{STYLE}{alone}</style>\n\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <text class=\"title\" x=\"24\" y=\"34\">{title}</text>\n\
         <text class=\"head\" x=\"{LEFT}\" y=\"66\" text-anchor=\"end\">publishes</text>\n\
         <text class=\"head\" x=\"{RIGHT}\" y=\"66\">reads</text>"
    );
    lines(&mut svg, &edges, &groups, &left, &right);
    for (nodes, x) in [(&left, LEFT - NODE_WIDTH), (&right, RIGHT)] {
        boxes(&mut svg, &groups, nodes, x);
    }
    let _ = writeln!(
        svg,
        "<text class=\"note\" x=\"24\" y=\"{}\">{}</text>\n</svg>",
        height - 24.0,
        escape(&note(catalog))
    );
    svg
}

type Edges<'a> = BTreeMap<(&'a str, &'a str), usize>;
type Groups<'a> = Vec<(&'a str, Vec<&'a str>)>;
type Nodes<'a> = BTreeMap<&'a str, Node>;

struct Node {
    y: f64,
    height: f64,
}

/// How many events go from one service to another.
fn edges(catalog: &Catalog) -> Edges<'_> {
    let mut edges = Edges::new();
    for event in catalog.events() {
        for consumer in &event.consumers {
            if !catalog.system.readers_of_all.contains(&consumer.service) {
                *edges.entry((&event.owner, &consumer.service)).or_default() += 1;
            }
        }
    }
    edges
}

/// The services that have lines, by group. One that publishes nothing has no file and no group.
fn groups<'a>(catalog: &'a Catalog, edges: &Edges<'a>) -> Groups<'a> {
    let mut rest: BTreeSet<&str> = edges.keys().flat_map(|(from, to)| [*from, *to]).collect();
    let mut groups: Groups<'a> = Vec::new();
    for (group, services) in catalog.grouped() {
        let names = services.iter().map(|service| service.name.as_str());
        groups.push((group, names.filter(|name| rest.remove(name)).collect()));
    }
    groups.push(("Readers only", rest.into_iter().collect()));
    groups.retain(|(_, services)| !services.is_empty());
    groups
}

/// Stacks the services that have lines on this side, each as high as its lines.
fn place<'a>(groups: &Groups<'a>, degree: impl Fn(&str) -> usize) -> Nodes<'a> {
    let mut nodes = Nodes::new();
    let mut y = TOP;
    for (_, services) in groups {
        let with_lines: Vec<&str> =
            services.iter().copied().filter(|service| degree(service) > 0).collect();
        if !with_lines.is_empty() {
            y += GROUP_HEAD;
        }
        for service in with_lines {
            let height = (degree(service) as f64 * PORT + 6.0).max(24.0);
            nodes.insert(service, Node { y, height });
            y += height + NODE_GAP;
        }
    }
    nodes
}

/// A service's number, the same on both sides.
fn number(groups: &Groups<'_>, service: &str) -> usize {
    let mut all = groups.iter().flat_map(|(_, services)| services);
    all.position(|other| *other == service).unwrap_or_default()
}

/// Fades the lines of other services while the pointer is over one.
fn alone(groups: &Groups<'_>) -> String {
    let count: usize = groups.iter().map(|(_, services)| services.len()).sum();
    let rule = |n| format!("svg:has(.n{n}:hover) .edge:not(.e{n}){{opacity:.07}}");
    (0..count).map(rule).collect()
}

fn hue(groups: &Groups<'_>, service: &str) -> usize {
    let group = groups.iter().position(|(_, services)| services.contains(&service));
    (group.unwrap_or(0) * 360 / groups.len().max(1) + 205) % 360
}

fn lines(
    svg: &mut String,
    edges: &Edges<'_>,
    groups: &Groups<'_>,
    left: &Nodes<'_>,
    right: &Nodes<'_>,
) {
    for ((from, to), count) in edges {
        let (Some(source), Some(target)) = (left.get(from), right.get(to)) else { continue };
        // Ports in the order of the other ends keep the lines of one node from crossing.
        let others_out = edges.keys().filter(|edge| edge.0 == *from);
        let above_out = others_out.filter(|e| right.get(e.1).is_some_and(|n| n.y < target.y));
        let others_in = edges.keys().filter(|edge| edge.1 == *to);
        let above_in = others_in.filter(|e| left.get(e.0).is_some_and(|n| n.y < source.y));
        let y1 = source.y + 3.0 + PORT * (above_out.count() as f64 + 0.5);
        let y2 = target.y + 3.0 + PORT * (above_in.count() as f64 + 0.5);
        let hue = hue(groups, from);
        let (one, other) = (number(groups, from), number(groups, to));
        let middle = f64::midpoint(LEFT, RIGHT);
        let width = 1.0 + (*count as f64).min(12.0) * 0.45;
        let events = if *count == 1 { "event" } else { "events" };
        let _ = writeln!(
            svg,
            "<g class=\"edge e{one} e{other}\" style=\"--hue:{hue}\"><title>{} to {}: {count} {events}</title>\
             <path d=\"M{LEFT} {y1}C{middle} {y1} {middle} {y2} {end} {y2}\" \
             stroke-width=\"{width:.1}\"/>\
             <text x=\"{number}\" y=\"{base}\" text-anchor=\"end\">{count}</text></g>",
            escape(from),
            escape(to),
            end = RIGHT - 22.0,
            number = RIGHT - 6.0,
            base = y2 + 4.0,
        );
    }
}

fn boxes(svg: &mut String, groups: &Groups<'_>, nodes: &Nodes<'_>, x: f64) {
    for (group, services) in groups {
        let mut head = Some(group);
        for service in services {
            let Some(node) = nodes.get(service) else { continue };
            if let Some(group) = head.take() {
                let (y, group) = (node.y - 8.0, escape(group));
                let _ = writeln!(svg, "<text class=\"group\" x=\"{x}\" y=\"{y}\">{group}</text>");
            }
            let _ = writeln!(
                svg,
                "<g class=\"n{}\" style=\"--hue:{}\"><rect class=\"node\" x=\"{x}\" y=\"{}\" \
                 width=\"{NODE_WIDTH}\" height=\"{}\" rx=\"5\"/>\
                 <text x=\"{}\" y=\"{}\">{}</text></g>",
                number(groups, service),
                hue(groups, service),
                node.y,
                node.height,
                x + 12.0,
                node.y + node.height / 2.0 + 4.5,
                escape(service)
            );
        }
    }
}

fn note(catalog: &Catalog) -> String {
    let events = catalog.events().count();
    let silent = catalog.events().filter(|event| event.consumers.is_empty()).count();
    let mut note = format!("{events} events, {silent} of them without a reader of their own.");
    for reader in &catalog.system.readers_of_all {
        let _ = write!(note, " {reader} reads every topic and is not drawn.");
    }
    note
}

/// Text escaped for XML and HTML.
fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

const STYLE: &str = "\
.paper{fill:#fcfcfa}.node{fill:#fff;stroke:hsl(var(--hue) 40% 60%)}\
text{font:13px system-ui,sans-serif;fill:#24231f}.title{font-size:18px;font-weight:600}\
.head,.group,.note{fill:#6f6c64}.head{font-size:12px;letter-spacing:.08em}.group{font-weight:600;font-size:12px}\
.edge path{fill:none;stroke:hsl(var(--hue) 55% 45%);opacity:.5}\
.edge text{font-size:11px;fill:hsl(var(--hue) 60% 32%)}\
.edge:hover path{opacity:1;stroke-width:6}.edge:hover text{font-weight:700}\
@media (prefers-color-scheme:dark){.paper{fill:#191a1d}.node{fill:#232529;stroke:hsl(var(--hue) 35% 45%)}\
text{fill:#e6e4de}.head,.group,.note{fill:#9c9a92}\
.edge path{stroke:hsl(var(--hue) 60% 60%)}.edge text{fill:hsl(var(--hue) 70% 74%)}}";
