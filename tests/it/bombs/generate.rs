//! Generator of hostile commands that grow, nest and multiply values, each around one operator of the tables.

use super::arguments;
use base::random::Random;
use query::expression::{Arity, OPERATORS, Operator};
use query::matcher::operators::OPERATORS as FILTERS;

/// Subject of a command: the kind of operator and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Core {
    Expression(&'static str),
    Accumulator(&'static str),
    Window(&'static str),
    Stage(&'static str),
    Filter(&'static str),
    Update(&'static str),
    /// Several operators in one command.
    Mixed,
}

/// Returns every operator of every table.
pub(crate) fn cores() -> Vec<Core> {
    let mut cores: Vec<Core> = OPERATORS.iter().map(|operator| Core::Expression(operator.name)).collect();
    cores.extend(query::accumulator::accumulators().map(Core::Accumulator));
    cores.extend(query::window::window_functions().map(Core::Window));
    cores.extend(query::pipeline::stages().map(|stage| Core::Stage(stage.name)));
    cores.extend(FILTERS.iter().map(|operator| Core::Filter(operator.name)));
    cores.extend(query::update::operators::names().map(Core::Update));
    cores
}

/// State of the generator for one command.
pub(crate) struct Maker {
    random: Random,
    /// Preferred operands, if the operands should be of one kind.
    mostly: &'static [&'static str],
}

impl Maker {
    /// Creates a generator. Equal seeds yield equal commands.
    pub(crate) fn new(seed: u64) -> Maker {
        Maker::of(seed, &[])
    }

    /// Creates a generator with preferred operands.
    pub(crate) fn of(seed: u64, mostly: &'static [&'static str]) -> Maker {
        let mut maker = Maker { random: Random::new(seed), mostly };
        // Skips the first numbers, which are alike for many seeds.
        (0..4).for_each(|_| _ = maker.below(2));
        maker
    }

    pub(super) fn below(&mut self, most: usize) -> usize {
        self.random.draw() as usize % most
    }

    /// Returns a preferred operand.
    fn usual(&mut self) -> Option<String> {
        let usual = !self.mostly.is_empty() && self.chance(7);
        usual.then(|| self.pick(self.mostly).to_string())
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn chance(&mut self, of_ten: usize) -> bool {
        self.below(10) < of_ten
    }

    /// Returns a command, without `$db` and `maxTimeMS`.
    pub(crate) fn command(&mut self, core: Core) -> String {
        match core {
            Core::Expression(name) => {
                let expression = self.call(name, 2);
                self.around_expression(&expression)
            }
            Core::Accumulator(name) => {
                let accumulated = arguments::accumulator(self, name);
                let id = self.pick(&["null", "'$k'", "'$_id'", "'$l'", "{$range: [0, '$_id']}"]);
                let front = self.front();
                self.aggregate(&format!("{front}{{$group: {{_id: {id}, x: {{{name}: {accumulated}}}}}}}"))
            }
            Core::Window(name) => {
                let (function, sort) = arguments::window(self, name);
                let partition = self.pick(&["", "partitionBy: '$k', "]);
                let front = self.front();
                self.aggregate(&format!(
                    "{front}{{$setWindowFields: {{{partition}{sort}output: {{x: {function}}}}}}}"
                ))
            }
            Core::Stage(name) => {
                let stage = arguments::stage(self, name);
                let is_first = stage.starts_with("FIRST ");
                let stage = stage.trim_start_matches("FIRST ").to_string();
                let front = if is_first { String::new() } else { self.front() };
                let times =
                    if is_first || matches!(name, "$out" | "$merge") { 1 } else { self.pick(&[1, 1, 5]) };
                self.aggregate(&format!("{front}{}", vec![stage; times].join(", ")))
            }
            Core::Filter(name) => {
                let filter = arguments::filter(self, name);
                self.around_filter(&filter)
            }
            Core::Update(name) => arguments::update(self, name),
            Core::Mixed => self.mixed(),
        }
    }

    /// Returns several stages of any kind.
    fn mixed(&mut self) -> String {
        let mut stages = Vec::new();
        for _ in 0..1 + self.below(6) {
            let stage = match self.below(8) {
                0 => "{$unwind: '$l'}".to_string(),
                1 => format!("{{$sort: {{x: 1, {}: -1}}}}", self.pick(&["k", "l", "s", "_id"])),
                2 => format!(
                    "{{$group: {{_id: '$k', x: {{$push: '$$ROOT'}}, l: {{$first: {}}}}}}}",
                    self.value(2)
                ),
                3 => "{$lookup: {from: 'c', pipeline: [{$limit: 50}], as: 'x'}}".to_string(),
                4 => "{$unionWith: 'c'}".to_string(),
                5 => "{$facet: {a: [{$unwind: '$l'}], b: [{$limit: 20}]}}, {$unwind: '$b'}".to_string(),
                6 => format!("{{$match: {{$expr: {{$ne: ['$x', {}]}}}}}}", self.value(2)),
                _ => format!("{{$set: {{x: {}, l: {}}}}}", self.value(3), self.array(2)),
            };
            let times = self.pick(&[1, 1, 1, 3, 20]);
            (0..times).for_each(|_| stages.push(stage.clone()));
        }
        self.aggregate(&stages.join(", "))
    }

    pub(super) fn aggregate(&mut self, stages: &str) -> String {
        format!("{{aggregate: 'c', cursor: {{}}, pipeline: [{stages}]}}")
    }

    /// Returns stages that multiply or enlarge the documents.
    pub(super) fn front(&mut self) -> String {
        match self.below(6) {
            0 => String::new(),
            1 => "{$unwind: '$l'}, ".to_string(),
            2 => "{$set: {l: {$range: [0, 3000]}}}, {$unwind: '$l'}, ".to_string(),
            3 => format!("{{$set: {{s: {}, x: {}}}}}, ", self.string(1), self.value(1)),
            4 => "{$set: {s: {a: '$$ROOT', b: '$$ROOT'}}}, ".repeat(1 + self.below(12)),
            _ => "{$unionWith: 'c'}, ".repeat(1 + self.below(5)),
        }
    }

    /// Returns a command that computes this expression once or repeatedly.
    fn around_expression(&mut self, expression: &str) -> String {
        let repeat = self.pick(&[1, 1, 4, 40]);
        match self.below(8) {
            0 => format!("{{find: 'c', filter: {{$expr: {{$eq: [{expression}, '$x']}}}}}}"),
            1 => format!("{{find: 'c', projection: {{x: {expression}}}, sort: {{k: 1}}}}"),
            2 => format!(
                "{{update: 'c', updates: [{{q: {{}}, u: [{{$set: {{y: {expression}}}}}], multi: true}}]}}"
            ),
            3 => {
                let front = self.front();
                self.aggregate(&format!(
                    "{front}{{$group: {{_id: {expression}, x: {{$push: {expression}}}}}}}"
                ))
            }
            4 => {
                format!("{{find: 'c', let: {{v: {expression}}}, filter: {{$expr: {{$gt: ['$$v', '$x']}}}}}}")
            }
            _ => {
                let front = self.front();
                let set = format!("{{$set: {{x: {expression}}}}}, ").repeat(repeat);
                self.aggregate(&format!("{front}{set}{{$match: {{none: 1}}}}"))
            }
        }
    }

    fn around_filter(&mut self, filter: &str) -> String {
        match self.below(6) {
            0 => format!("{{count: 'c', query: {filter}}}"),
            1 => format!("{{delete: 'none', deletes: [{{q: {filter}, limit: 0}}]}}"),
            2 => format!("{{distinct: 'c', key: 'l', query: {filter}}}"),
            3 => {
                let front = self.front();
                self.aggregate(&format!("{front}{{$match: {filter}}}, {{$group: {{_id: '$x'}}}}"))
            }
            _ => format!("{{find: 'c', filter: {filter}, sort: {{s: -1}}}}"),
        }
    }

    /// Returns a call of an operator with large operands.
    pub(super) fn call(&mut self, name: &str, depth: usize) -> String {
        let operator = OPERATORS.iter().find(|operator| operator.name == name).unwrap();
        match operator.arity {
            Arity::Any => {
                let count = self.pick(&[1, 2, 3, 40]);
                let depth = if count > 3 { 0 } else { depth };
                let operand = |maker: &mut Maker| maker.operand(operator, depth);
                let operands: Vec<String> = (0..count).map(|_| operand(self)).collect();
                format!("{{{name}: [{}]}}", operands.join(", "))
            }
            Arity::Exactly(count) | Arity::Between(count, _) => {
                let most = if let Arity::Between(_, most) = operator.arity { most } else { count };
                let count = count + self.below(most - count + 1);
                let operands: Vec<String> =
                    (0..count).map(|at| arguments::positional(self, operator, at, depth)).collect();
                format!("{{{name}: [{}]}}", operands.join(", "))
            }
            Arity::Converted => format!("{{{name}: {}}}", self.operand(operator, depth)),
            Arity::Named(named) => {
                let mut given = Vec::new();
                for parameter in named.parameters {
                    if parameter.missing.is_some() || self.chance(4) {
                        given.push(format!(
                            "{}: {}",
                            parameter.name,
                            arguments::named(self, operator, parameter.name, depth)
                        ));
                    }
                }
                format!("{{{name}: {{{}}}}}", given.join(", "))
            }
            _ => arguments::own(self, name, depth),
        }
    }

    /// Returns an operand of the operator's main type, or of any type.
    pub(super) fn operand(&mut self, operator: &Operator, depth: usize) -> String {
        if self.chance(2) {
            return self.value(depth);
        }
        match arguments::kind(operator.name) {
            arguments::Kind::Array => self.array(depth),
            arguments::Kind::String => self.string(depth),
            arguments::Kind::Document => self.document(depth),
            arguments::Kind::Date => self.pick(&["'$d'", "'$$NOW'"]).to_string(),
            arguments::Kind::Number => self.number(depth),
            arguments::Kind::Any => self.value(depth),
        }
    }

    /// Returns any value, usually large.
    pub(super) fn value(&mut self, depth: usize) -> String {
        if let Some(usual) = self.usual() {
            return usual;
        }
        match self.below(8) {
            0 | 1 => self.array(depth),
            2 | 3 => self.string(depth),
            4 => self.document(depth),
            5 => self.number(depth),
            6 => self.pick(&["'$$ROOT'", "'$x'", "'$deep'", "'$$NOW'", "null", "'$none'"]).to_string(),
            _ if depth > 0 => {
                let operator = &OPERATORS[self.below(OPERATORS.len())];
                self.call(operator.name, depth - 1)
            }
            _ => "'$deep'".to_string(),
        }
    }

    /// Returns a large, small or distant number.
    pub(super) fn number(&mut self, depth: usize) -> String {
        match self.below(if depth > 0 { 7 } else { 6 }) {
            0 => "2147483647".to_string(),
            1 => "-1".to_string(),
            2 => "'$_id'".to_string(),
            3 => "NumberDecimal('9.999999999999999999999999999999999E+6144')".to_string(),
            4 => "1e300".to_string(),
            5 => "7".to_string(),
            _ => format!("{{$size: {}}}", self.array(depth - 1)),
        }
    }

    /// Returns an array that is long or has long elements.
    pub(super) fn array(&mut self, depth: usize) -> String {
        if let Some(usual) = self.usual() {
            return usual;
        }
        if depth == 0 {
            return self.pick(&["'$l'", "{$range: [0, 100000]}", "['$x', '$x']", "'$deep'"]).to_string();
        }
        match self.below(7) {
            0 => "{$range: [0, 2147483647]}".to_string(),
            1 => format!("{{$range: [0, {}]}}", self.pick(&[1000, 300_000, 5_000_000])),
            2 => {
                let (one, other) = (self.array(depth - 1), self.array(depth - 1));
                format!("{{$concatArrays: [{one}, {other}, {one}]}}")
            }
            3 => {
                let (input, each) = (self.array(depth - 1), self.value(depth - 1));
                format!("{{$map: {{input: {input}, in: {each}}}}}")
            }
            4 => format!(
                "{{$reduce: {{input: {{$range: [0, {}]}}, initialValue: ['$s'], in: {{$concatArrays: ['$$value', '$$value']}}}}}}",
                self.pick(&[8, 40])
            ),
            5 => {
                let input = self.array(depth - 1);
                format!("{{$filter: {{input: {input}, cond: {{$ne: ['$$this', '$x']}}}}}}")
            }
            _ => "[['$$ROOT', '$l'], '$x', ['$x']]".to_string(),
        }
    }

    /// Returns a text that is long or becomes long.
    pub(super) fn string(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self
                .pick(&["'$s'", "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'", "{$concat: ['$s', '$s', '$s']}"])
                .to_string();
        }
        match self.below(3) {
            0 => format!(
                "{{$reduce: {{input: {{$range: [0, {}]}}, initialValue: '$s', in: {{$concat: ['$$value', '$$value']}}}}}}",
                self.pick(&[12, 30])
            ),
            1 => {
                let inner = self.string(depth - 1);
                format!("{{$concat: [{}]}}", vec![inner; 4].join(", "))
            }
            _ => {
                let inner = self.string(depth - 1);
                format!("{{$replaceAll: {{input: {inner}, find: 'a', replacement: {inner}}}}}")
            }
        }
    }

    /// Returns a large document.
    pub(super) fn document(&mut self, depth: usize) -> String {
        if let Some(usual) = self.usual() {
            return usual;
        }
        if depth == 0 {
            return self.pick(&["'$$ROOT'", "{a: '$x', b: '$x'}", "'$o'"]).to_string();
        }
        match self.below(3) {
            0 => {
                let inner = self.value(depth - 1);
                format!("{{a: {inner}, b: {{c: {inner}, d: {inner}}}}}")
            }
            1 => {
                let levels = 20 + self.below(60);
                format!("{}'$$ROOT'{}", "{a: ".repeat(levels), "}".repeat(levels))
            }
            _ => format!(
                "{{$arrayToObject: {{$map: {{input: {{$range: [0, {}]}}, in: {{k: {{$toString: '$$this'}}, v: '$x'}}}}}}}}",
                self.pick(&[1000, 200_000])
            ),
        }
    }
}
