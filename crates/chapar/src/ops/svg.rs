//! A story as a picture: the tree on the left, the time on the right.

use std::fmt::Write;

use jiff::Timestamp;

use super::trace::{Node, Story, since};

const ROW: f64 = 26.0;
const LEFT: f64 = 470.0;
const RIGHT: f64 = 1240.0;
const WIDTH: f64 = 1280.0;
const PALETTE: [&str; 8] =
    ["#2f6fde", "#0f9d76", "#c2570c", "#8b45d6", "#b8256e", "#0b87a6", "#7a7f12", "#5a5f73"];

/// A line of the picture.
enum Line<'a> {
    Event(&'a Node),
    Under { node: &'a Node, text: String, from: Timestamp, to: Timestamp, style: Style },
}

#[derive(Clone, Copy, PartialEq)]
enum Style {
    Applied,
    Passed,
    Failed,
    Call,
}

impl Story {
    /// As a picture.
    pub fn to_svg(&self) -> String {
        let lines = self.lines();
        let sagas = self.sagas.len() as f64;
        let top = 104.0;
        let saga_height = if sagas > 0.0 { sagas * 44.0 + 14.0 } else { 0.0 };
        let body = top + saga_height;
        let height = body + lines.len() as f64 * ROW + 70.0;
        let scale = Scale::new(self.began(), self.ended());
        let mut svg = Picture(String::with_capacity(lines.len() * 400 + 4000));
        svg.open(height);
        self.head(&mut svg);
        scale.draw(&mut svg, top, height - 62.0);
        for (index, (card, history)) in self.sagas.iter().enumerate() {
            let y = top + 10.0 + index as f64 * 44.0;
            let outcome = card.outcome.as_deref().unwrap_or("under way");
            svg.text(24.0, y + 12.0, "b", &format!("saga {}", card.saga));
            svg.text(24.0, y + 28.0, "s", &format!("{} · {outcome}", cut(&card.key, 44)));
            let mut steps: Vec<(Timestamp, &str)> = Vec::new();
            for step in history {
                if steps.last().is_none_or(|(_, state)| *state != step.to_state) {
                    steps.push((step.at, &step.to_state));
                }
            }
            for (n, (at, state)) in steps.iter().enumerate() {
                let from = scale.x(*at);
                let to = steps.get(n + 1).map_or(RIGHT, |(next, _)| scale.x(*next));
                let last = n + 1 == steps.len() && card.outcome.is_some();
                let fill = match (last, card.outcome.as_deref()) {
                    (true, Some("completed")) => "#d9f2e6",
                    (true, _) => "#fbe2dc",
                    (false, _) => PASTEL[n % PASTEL.len()],
                };
                svg.bar(from, y + 2.0, (to - from).max(3.0), 26.0, fill, "");
                if to - from > 7.0 * state.len() as f64 + 10.0 {
                    svg.text(from + 7.0, y + 19.0, "m", state);
                }
            }
        }
        for (index, line) in lines.iter().enumerate() {
            let y = body + index as f64 * ROW;
            match line {
                Line::Event(node) => self.event(&mut svg, &scale, node, y),
                Line::Under { node, text, from, to, style } => {
                    let (colour, mark) = match style {
                        Style::Applied => (self.colour(&node.service), "✓"),
                        Style::Passed => ("#9aa1b1", "·"),
                        Style::Failed => ("#d02b20", "✗"),
                        Style::Call => ("#6a7183", "⇢"),
                    };
                    let x = 44.0 + node.depth as f64 * 18.0;
                    let class = if *style == Style::Failed { "f" } else { "s" };
                    let width = if *style == Style::Failed { 6.9 } else { 6.2 };
                    let room = ((LEFT - x - 28.0) / width) as usize;
                    // The tooltip has the whole text.
                    let _ = write!(svg.0, "<g><title>{}</title>", escaped(text));
                    svg.text(x, y + 17.0, class, &format!("{mark} {}", cut(text, room)));
                    svg.0.push_str("</g>");
                    let (a, b) = (scale.x(*from), scale.x(*to));
                    let thin = if *style == Style::Call { 3.0 } else { 5.0 };
                    let y = y + ROW / 2.0;
                    svg.bar(a, y - thin / 2.0, (b - a).max(2.0), thin, colour, " opacity='.35'");
                    svg.circle(b, y, 4.0, colour);
                    svg.label(b, y + 4.0, &since(self.began(), *to));
                }
            }
        }
        self.legend(&mut svg, height);
        svg.0.push_str("</svg>\n");
        svg.0
    }

    fn lines(&self) -> Vec<Line<'_>> {
        let mut lines = Vec::new();
        for node in &self.events {
            lines.push(Line::Event(node));
            let sent = node.event.published_at.unwrap_or(node.event.written_at);
            if let Some(error) = &node.event.parked {
                let text = format!("not published: {error}");
                let (from, to) = (sent, self.ended());
                lines.push(Line::Under { node, text, from, to, style: Style::Failed });
            }
            for reception in &node.receptions {
                let plain = reception.result == "ok";
                let style = if plain { Style::Applied } else { Style::Passed };
                let result =
                    if plain { String::new() } else { format!(" · {}", reception.result) };
                let text = format!("{}{result}", reception.consumer);
                let (from, to) = (sent, reception.processed_at);
                lines.push(Line::Under { node, text, from, to, style });
            }
            for held in &node.held {
                let closed = held.status == "closed";
                let style = if closed { Style::Passed } else { Style::Failed };
                let text = format!("{} · {} · {}", held.consumer, held.kind, held.error);
                lines.push(Line::Under { node, text, from: sent, to: held.since, style });
            }
            for effect in &node.effects {
                let text = format!("{} · {}", effect.kind, effect.status);
                let (from, to) = (effect.created_at, effect.finished_at);
                let to = to.unwrap_or_else(|| self.ended());
                lines.push(Line::Under { node, text, from, to, style: Style::Call });
            }
        }
        lines
    }

    fn head(&self, svg: &mut Picture) {
        let tenant = self.events.first().map_or("", |node| node.event.tenant.as_str());
        let took = since(self.began(), self.ended());
        svg.text(24.0, 38.0, "t", &format!("Correlation {}", self.correlation));
        let (events, services) = (self.events.len(), self.services().len());
        let mut about = format!("{tenant} · {events} events of {services} services · {took}");
        match self.held() {
            0 => about.push_str(" · none held"),
            some => {
                let _ = write!(about, " · {some} dead-lettered, parked or stashed");
            }
        }
        svg.text(24.0, 60.0, "h", &about);
        let began = self.began();
        svg.end(RIGHT, 60.0, &format!("{began:.0}"));
    }

    fn event(&self, svg: &mut Picture, scale: &Scale, node: &Node, y: f64) {
        let colour = self.colour(&node.service);
        let x = 30.0 + node.depth as f64 * 18.0;
        if node.depth > 0 {
            let _ =
                write!(svg.0, "<path d='M{:.0} {:.0}v8q0 5 5 5h8' class='k'/>", x - 13.0, y + 1.0);
        }
        svg.circle(x, y + 13.0, 5.0, colour);
        let room = (LEFT - x - 24.0) / 8.2;
        let title = cut(node.title(), room as usize);
        svg.text(x + 14.0, y + 17.0, "b", &title);
        let after = x + 24.0 + title.chars().count() as f64 * 8.1;
        let room = ((LEFT - after - 12.0) / 6.2).max(0.0) as usize;
        if room > 6 {
            let whose = format!("{} · {}", node.service, node.event.aggregate_id);
            svg.text(after, y + 17.0, "s", &cut(&whose, room));
        }
        let from = scale.x(node.event.written_at);
        let to = node.event.published_at.map_or(from, |at| scale.x(at));
        svg.bar(from, y + 7.0, (to - from).max(5.0), 12.0, colour, "");
        svg.label(to.max(from + 5.0), y + 17.0, &since(self.began(), node.event.written_at));
    }

    fn legend(&self, svg: &mut Picture, height: f64) {
        let mut x = 30.0;
        for service in self.services() {
            svg.circle(x, height - 26.0, 5.0, self.colour(service));
            svg.text(x + 11.0, height - 22.0, "s", service);
            x += 34.0 + service.chars().count() as f64 * 6.6;
        }
        let key = "bar: from commit to transport   ·   line: until a consumer has applied it";
        svg.end(RIGHT, height - 22.0, key);
    }

    fn colour(&self, service: &str) -> &'static str {
        let at = self.services().iter().position(|name| *name == service).unwrap_or(0);
        PALETTE[at % PALETTE.len()]
    }
}

const PASTEL: [&str; 3] = ["#e4ecfb", "#ede5fa", "#e2f2f6"];

/// Times to places.
struct Scale {
    began: Timestamp,
    ms: f64,
}

impl Scale {
    fn new(began: Timestamp, ended: Timestamp) -> Self {
        let ms = ended.duration_since(began).as_micros() as f64 / 1000.0;
        // Room for the last label.
        Scale { began, ms: (ms * 1.1).max(1.0) }
    }

    fn x(&self, at: Timestamp) -> f64 {
        let ms = at.duration_since(self.began).as_micros() as f64 / 1000.0;
        LEFT + (ms / self.ms).clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    /// A line at each round time, five to ten of them.
    fn draw(&self, svg: &mut Picture, top: f64, bottom: f64) {
        let magnitude = 10f64.powf((self.ms / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .iter()
            .map(|factor| factor * magnitude)
            .find(|step| self.ms / step <= 8.0)
            .unwrap_or(self.ms);
        let mut at = 0.0;
        while at <= self.ms {
            let x = LEFT + at / self.ms * (RIGHT - LEFT);
            let _ = write!(svg.0, "<path d='M{x:.1} {top:.0}V{bottom:.0}' class='g'/>");
            let label = match at {
                at if at >= 60_000.0 => format!("{:.1} min", at / 60_000.0),
                at if self.ms >= 3000.0 => format!("{:.1} s", at / 1000.0),
                at => format!("{at:.0} ms"),
            };
            let _ = write!(svg.0, "<text x='{x:.1}' y='{:.0}' class='a'>{label}</text>", top - 8.0);
            at += step;
        }
    }
}

struct Picture(String);

impl Picture {
    fn open(&mut self, height: f64) {
        let _ = write!(
            self.0,
            "<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' viewBox='0 0 {WIDTH} {height}'>\
             <style>text{{font-family:Inter,system-ui,'Segoe UI',sans-serif;fill:#1c2333}}\
             .t{{font-size:19px;font-weight:650}}.h{{font-size:13px;fill:#5a6275}}\
             .b{{font-size:13px;font-weight:600}}.s{{font-size:11.5px;fill:#5a6275}}\
             .m{{font-size:12px;font-weight:550;fill:#333c50}}.f{{font-size:11.5px;fill:#c2251b;font-weight:550}}\
             .a{{font-size:11px;fill:#8a92a3;text-anchor:middle}}.l{{font-size:10.5px;fill:#7a8295}}\
             .e{{font-size:11.5px;fill:#8a92a3;text-anchor:end}}\
             .g{{stroke:#edf0f5;fill:none}}.k{{stroke:#c4cad6;fill:none;stroke-width:1.4}}</style>\
             <rect width='{WIDTH}' height='{height}' rx='12' fill='#fff'/>\
             <rect x='.5' y='.5' width='{}' height='{}' rx='12' fill='none' stroke='#dfe3ea'/>",
            WIDTH - 1.0,
            height - 1.0
        );
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let text = escaped(text);
        let _ = write!(self.0, "<text x='{x:.0}' y='{y:.0}' class='{class}'>{text}</text>");
    }

    fn end(&mut self, x: f64, y: f64, text: &str) {
        self.text(x, y, "e", text);
    }

    fn label(&mut self, x: f64, y: f64, text: &str) {
        let (x, class) = if x > RIGHT - 62.0 { (x - 9.0, "e") } else { (x + 9.0, "l") };
        self.text(x, y, class, text);
    }

    fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str, more: &str) {
        let round = (height / 2.0).min(5.0);
        let _ = write!(
            self.0,
            "<rect x='{x:.1}' y='{y:.1}' width='{width:.1}' height='{height}' rx='{round}' fill='{fill}'{more}/>"
        );
    }

    fn circle(&mut self, x: f64, y: f64, r: f64, fill: &str) {
        let _ = write!(self.0, "<circle cx='{x:.1}' cy='{y:.1}' r='{r}' fill='{fill}'/>");
    }
}

fn cut(text: &str, room: usize) -> String {
    let text = text.lines().next().unwrap_or_default();
    if text.chars().count() <= room {
        return text.to_owned();
    }
    text.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&apos;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
