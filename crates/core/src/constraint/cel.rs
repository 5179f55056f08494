//! The part of the Common Expression Language that compares fields: `this.units > 0`, joined by
//! `&&`, `||`, `!` and parentheses. Anything else is refused when the expression is parsed.

use prost_reflect::{DynamicMessage, Kind, Value};

/// A boolean expression over a value.
#[derive(Debug)]
pub(super) struct Expression {
    text: String,
    root: Node,
}

#[derive(Debug)]
enum Node {
    Or(Box<Node>, Box<Node>),
    And(Box<Node>, Box<Node>),
    Not(Box<Node>),
    Compare(Operand, Operator, Operand),
    /// A boolean field.
    Flag(Operand),
}

#[derive(Debug)]
enum Operand {
    /// The path of fields from the value.
    Path(Vec<String>),
    Int(i128),
    Text(String),
    Bool(bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// The types that can be compared, each only with itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Int,
    Text,
    Bool,
}

#[derive(Debug, PartialEq, PartialOrd)]
enum Known {
    Int(i128),
    Text(String),
    Bool(bool),
}

/// The maximum nesting depth; the parser recurses.
const DEPTH: usize = 32;

impl Expression {
    /// Parses an expression over a value of this kind.
    pub(super) fn parse(text: &str, about: &Kind) -> Result<Expression, String> {
        let mut parser = Parser { rest: text, about, depth: 0 };
        let root = parser.or()?;
        parser.space();
        if !parser.rest.is_empty() {
            return Err(format!("{:?} is not understood", parser.rest));
        }
        Ok(Expression { text: text.to_owned(), root })
    }

    pub(super) fn holds(&self, value: &Value) -> bool {
        self.root.holds(value)
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

impl Node {
    fn holds(&self, value: &Value) -> bool {
        match self {
            Node::Or(a, b) => a.holds(value) || b.holds(value),
            Node::And(a, b) => a.holds(value) && b.holds(value),
            Node::Not(node) => !node.holds(value),
            Node::Flag(operand) => operand.of(value) == Some(Known::Bool(true)),
            Node::Compare(a, operator, b) => {
                let (Some(a), Some(b)) = (a.of(value), b.of(value)) else { return false };
                match operator {
                    Operator::Eq => a == b,
                    Operator::Ne => a != b,
                    Operator::Lt => a < b,
                    Operator::Le => a <= b,
                    Operator::Gt => a > b,
                    Operator::Ge => a >= b,
                }
            }
        }
    }
}

impl Operand {
    fn of(&self, value: &Value) -> Option<Known> {
        match self {
            Operand::Int(n) => Some(Known::Int(*n)),
            Operand::Text(text) => Some(Known::Text(text.clone())),
            Operand::Bool(flag) => Some(Known::Bool(*flag)),
            Operand::Path(path) => walk(value, path),
        }
    }

    fn kind(&self, about: &Kind) -> Result<Type, String> {
        let Operand::Path(path) = self else {
            return Ok(match self {
                Operand::Text(_) => Type::Text,
                Operand::Bool(_) => Type::Bool,
                _ => Type::Int,
            });
        };
        let mut kind = about.clone();
        for name in path {
            let field = match &kind {
                Kind::Message(message) => message.get_field_by_name(name),
                _ => None,
            };
            let field = field.ok_or_else(|| format!("there is no field {name:?}"))?;
            if field.is_list() || field.is_map() {
                return Err(format!("{name} has several values"));
            }
            kind = field.kind();
        }
        match kind {
            Kind::String => Ok(Type::Text),
            Kind::Bool => Ok(Type::Bool),
            Kind::Message(_) | Kind::Bytes | Kind::Float | Kind::Double => {
                Err(format!("{} is nothing to compare", shown(path)))
            }
            _ => Ok(Type::Int),
        }
    }
}

fn walk(value: &Value, path: &[String]) -> Option<Known> {
    match (value, path) {
        (Value::Message(message), [name, rest @ ..]) => field(message, name, rest),
        (Value::I32(n) | Value::EnumNumber(n), []) => Some(Known::Int((*n).into())),
        (Value::I64(n), []) => Some(Known::Int((*n).into())),
        (Value::U32(n), []) => Some(Known::Int((*n).into())),
        (Value::U64(n), []) => Some(Known::Int((*n).into())),
        (Value::String(text), []) => Some(Known::Text(text.clone())),
        (Value::Bool(flag), []) => Some(Known::Bool(*flag)),
        _ => None,
    }
}

fn field(message: &DynamicMessage, name: &str, rest: &[String]) -> Option<Known> {
    walk(&*message.get_field_by_name(name)?, rest)
}

struct Parser<'a> {
    rest: &'a str,
    about: &'a Kind,
    depth: usize,
}

impl Parser<'_> {
    fn or(&mut self) -> Result<Node, String> {
        let mut node = self.and()?;
        while self.eat("||") {
            node = Node::Or(Box::new(node), Box::new(self.and()?));
        }
        Ok(node)
    }

    fn and(&mut self) -> Result<Node, String> {
        let mut node = self.not()?;
        while self.eat("&&") {
            node = Node::And(Box::new(node), Box::new(self.not()?));
        }
        Ok(node)
    }

    fn not(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err("it is nested too deeply".into());
        }
        let node = if !self.rest.trim_start().starts_with("!=") && self.eat("!") {
            Node::Not(Box::new(self.not()?))
        } else if self.eat("(") {
            let node = self.or()?;
            if !self.eat(")") {
                return Err("a bracket is not closed".into());
            }
            node
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(node)
    }

    fn comparison(&mut self) -> Result<Node, String> {
        const OPERATORS: [(&str, Operator); 6] = [
            ("==", Operator::Eq),
            ("!=", Operator::Ne),
            ("<=", Operator::Le),
            (">=", Operator::Ge),
            ("<", Operator::Lt),
            (">", Operator::Gt),
        ];
        let left = self.operand()?;
        let kind = left.kind(self.about)?;
        let operator = OPERATORS.iter().find(|(text, _)| self.eat(text));
        let Some((_, operator)) = operator else {
            return match kind {
                Type::Bool => Ok(Node::Flag(left)),
                _ => Err("a comparison is expected".into()),
            };
        };
        let right = self.operand()?;
        if right.kind(self.about)? != kind {
            return Err("the sides of a comparison are of different types".into());
        }
        Ok(Node::Compare(left, *operator, right))
    }

    fn operand(&mut self) -> Result<Operand, String> {
        self.space();
        if let Some(rest) = self.rest.strip_prefix(['\'', '"']) {
            let quote = &self.rest[..1];
            let end = rest.find(quote).ok_or("a text is not closed")?;
            let text = &rest[..end];
            if text.contains('\\') {
                return Err("escapes in a text are not understood".into());
            }
            self.rest = &rest[end + 1..];
            return Ok(Operand::Text(text.to_owned()));
        }
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let sign = usize::from(self.rest.starts_with('-'));
        let end = self.rest[sign..].find(|c| !word(c)).map_or(self.rest.len(), |end| end + sign);
        let (text, rest) = self.rest.split_at(end);
        let operand = match text {
            "true" => Operand::Bool(true),
            "false" => Operand::Bool(false),
            "this" => Operand::Path(Vec::new()),
            _ => match (text.strip_prefix("this."), text.parse::<i64>()) {
                (Some(path), _) => Operand::Path(path.split('.').map(str::to_owned).collect()),
                (None, Ok(n)) => Operand::Int(n.into()),
                _ => return Err(format!("{:?} is not understood", self.rest)),
            },
        };
        self.rest = rest;
        Ok(operand)
    }

    fn eat(&mut self, token: &str) -> bool {
        self.space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }
}

fn shown(path: &[String]) -> String {
    std::iter::once("this").chain(path.iter().map(String::as_str)).collect::<Vec<_>>().join(".")
}
