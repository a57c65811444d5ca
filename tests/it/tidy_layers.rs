//! Layers of the modules of `database` and of the folders of `server`: two of them never depend on each other, by
//! imports or by calls of methods that a later one adds to a type. ARCHITECTURE.md lists the layers from the lowest
//! up. The modules of `postgres`, `query`, `simulate`, `storage` and of the binary form no import cycle either. The
//! traits of `storage` have at most ten methods each.

use crate::root;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Types with methods in many modules: a call depends on the module that adds the method.
const EXTENDED: [&str; 5] =
    ["impl Database {", "impl CatalogChange<", "impl Server {", "impl Call<'_> {", "impl World {"];

/// Receivers of these methods.
const RECEIVERS: [&str; 8] =
    ["self.", "database.", "change.", "Database::", "server.", "call.", "Server::", "world."];

/// Each module with its sources, without tests.
type Modules = BTreeMap<String, String>;

/// Dependencies of each module, with the reason.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

fn gather(folder: &Path, module: Option<&str>, modules: &mut Modules) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = path.file_stem().unwrap().to_string_lossy().to_string();
        if name.ends_with("tests") || (module.is_none() && name == "lib") {
            continue;
        }
        let module = module.unwrap_or(&name);
        if path.is_dir() {
            gather(&path, Some(module), modules);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
        let code = code.lines().map(|line| line.split("//").next().unwrap_or(""));
        let all = modules.entry(module.to_string()).or_default();
        code.for_each(|line| {
            all.push_str(line);
            all.push('\n');
        });
    }
}

/// Returns the name at the start of a piece of code.
fn name_at(code: &str) -> &str {
    let end = code.find(|c: char| !c.is_alphanumeric() && c != '_');
    &code[..end.unwrap_or(code.len())]
}

/// Returns the module of each method added to such a type, if no other function has its name.
fn added_methods(modules: &Modules) -> BTreeMap<String, String> {
    let mut defined: BTreeMap<&str, usize> = BTreeMap::new();
    let mut added = BTreeMap::new();
    for (module, code) in modules {
        code.split("fn ").skip(1).for_each(|rest| *defined.entry(name_at(rest)).or_default() += 1);
        for block in EXTENDED.iter().flat_map(|head| code.split(head).skip(1)) {
            let block = block.split("\n}").next().unwrap_or("");
            for rest in block.split("fn ").skip(1) {
                added.insert(name_at(rest).to_string(), module.clone());
            }
        }
    }
    added.retain(|name, _| defined.get(name.as_str()) == Some(&1));
    added
}

/// The modules of the names that a crate's root re-exports: `crate::Key` is a name of the module `bytes`.
fn re_exports(root: &str) -> BTreeMap<String, String> {
    let mut modules = BTreeMap::new();
    for statement in root.split("pub use ").skip(1) {
        let statement = statement.split(';').next().unwrap_or("");
        let Some((module, names)) = statement.split_once("::") else { continue };
        let names = names.split(|c: char| !c.is_alphanumeric() && c != '_');
        modules.extend(names.map(|name| (name.to_string(), module.to_string())));
    }
    modules
}

fn edges(modules: &Modules) -> Edges {
    edges_by(modules, &BTreeMap::new())
}

/// The same where names of the crate's root stand for their modules.
fn edges_by(modules: &Modules, re_exports: &BTreeMap<String, String>) -> Edges {
    let methods = added_methods(modules);
    let mut edges = Edges::new();
    for (module, code) in modules {
        let mut targets: BTreeMap<String, String> = BTreeMap::new();
        for rest in code.split("crate::").skip(1) {
            let grouped = rest.starts_with('{').then(|| rest.split('}').next().unwrap_or(""));
            let names: Vec<&str> = match grouped {
                Some(group) => group.split([',', '{']).map(|part| name_at(part.trim())).collect(),
                None => vec![name_at(rest)],
            };
            let names = names.into_iter().map(|name| re_exports.get(name).map_or(name, String::as_str));
            for name in names.filter(|name| modules.contains_key(*name)) {
                targets.entry(name.to_string()).or_insert_with(|| "an import".to_string());
            }
        }
        for rest in RECEIVERS.iter().flat_map(|receiver| code.split(receiver).skip(1)) {
            let name = name_at(rest);
            if let Some(target) = methods.get(name).filter(|_| rest[name.len()..].starts_with('(')) {
                targets.entry(target.clone()).or_insert_with(|| format!("{name}()"));
            }
        }
        targets.remove(module);
        edges.insert(module.clone(), targets);
    }
    edges
}

fn modules_of(name: &str) -> Modules {
    let mut modules = Modules::new();
    gather(&root().join("crates").join(name).join("src"), None, &mut modules);
    modules
}

/// Returns the modules that depend on each other, with the reasons. Modules without dependents or dependencies are
/// removed repeatedly; the remaining ones form cycles.
fn cycles(mut edges: Edges) -> Vec<String> {
    loop {
        let before = edges.len();
        let needed: BTreeSet<String> = edges.values().flat_map(|targets| targets.keys().cloned()).collect();
        edges.retain(|module, targets| needed.contains(module) && !targets.is_empty());
        let left: BTreeSet<String> = edges.keys().cloned().collect();
        edges.values_mut().for_each(|targets| targets.retain(|name, _| left.contains(name)));
        if edges.len() == before {
            break;
        }
    }
    let describe = |(module, targets): (&String, &BTreeMap<String, String>)| {
        let targets: Vec<String> = targets.iter().map(|(name, why)| format!("{name} ({why})")).collect();
        format!("{module} → {}", targets.join(", "))
    };
    edges.iter().map(describe).collect()
}

#[test]
fn modules_of_database_have_no_cycles() {
    let cycles = cycles(edges(&modules_of("database")));
    assert!(cycles.is_empty(), "these depend on one another:\n{}\n", cycles.join("\n"));
}

#[test]
fn modules_of_other_crates_have_no_cycles() {
    for name in ["postgres", "query", "server", "simulate"] {
        let cycles = cycles(edges(&modules_of(name)));
        assert!(cycles.is_empty(), "these of {name} depend on one another:\n{}\n", cycles.join("\n"));
    }
}

#[test]
fn modules_of_the_binary_have_no_cycles() {
    let mut modules = Modules::new();
    gather(&root().join("src"), None, &mut modules);
    let cycles = cycles(edges(&modules));
    assert!(cycles.is_empty(), "these depend on one another:\n{}\n", cycles.join("\n"));
}

#[test]
fn modules_of_storage_have_no_cycles() {
    let lib = std::fs::read_to_string(root().join("crates/storage/src/lib.rs")).unwrap();
    let cycles = cycles(edges_by(&modules_of("storage"), &re_exports(&lib)));
    assert!(cycles.is_empty(), "these depend on one another:\n{}\n", cycles.join("\n"));
}

/// The most methods that a trait of the storage may have.
const METHODS_MAX: usize = 10;

#[test]
fn traits_of_the_storage_are_narrow() {
    let mut findings = Vec::new();
    for code in modules_of("storage").values() {
        for declared in code.split("pub trait ").skip(1) {
            let body = declared.split("\n}").next().unwrap_or("");
            let methods = body.lines().filter(|line| line.starts_with("    fn ")).count();
            if methods > METHODS_MAX {
                findings.push(format!("{} has {methods} methods", name_at(declared)));
            }
        }
    }
    assert!(findings.is_empty(), "{findings:?}");
}

#[test]
fn a_name_of_the_root_belongs_to_its_module() {
    let lib = "pub use low::{Key, Value};\npub use other::*;\npub use high::Engine;\n";
    let found = re_exports(lib);
    let module = |name: &str| found.get(name).map(String::as_str);
    assert_eq!((module("Key"), module("Value"), module("Engine")), (Some("low"), Some("low"), Some("high")));
    let module = |name: &str, code: &str| (name.to_string(), code.to_string());
    let modules =
        Modules::from([module("low", "use crate::Engine;\n"), module("high", "use crate::{Key};\n")]);
    assert_eq!(cycles(edges_by(&modules, &found)).len(), 2);
    assert_eq!(cycles(edges(&modules)).len(), 0);
}

#[test]
fn a_cycle_is_found() {
    let module = |name: &str, code: &str| (name.to_string(), code.to_string());
    let below = module("below", "impl Database {\n    pub fn stored(&self) {}\n}\n");
    let above = module("above", "use crate::{below, top};\nfn f() { database.stored() }\n");
    let top = module("top", "impl Database {\n    fn shown(&self) {}\n}\n");
    let good = Modules::from([below.clone(), above.clone(), top.clone()]);
    assert_eq!(cycles(edges(&good)), Vec::<String>::new());
    let by_import =
        module("below", "use crate::above::Something;\nimpl Database {\n    fn stored(&self) {}\n}\n");
    assert_eq!(
        cycles(edges(&Modules::from([by_import, above.clone(), top.clone()]))),
        ["above → below (an import)", "below → above (an import)"]
    );
    let by_method = module("top", "impl Database {\n    fn shown(&self) { self.stored() }\n}\n");
    let calls_back = module("below", "impl Database {\n    fn stored(&self) { self.shown() }\n}\n");
    assert_eq!(
        cycles(edges(&Modules::from([calls_back, above, by_method]))),
        ["below → top (shown())", "top → below (stored())"]
    );
}

#[test]
fn layers_match_architecture_md() {
    let findings: Vec<String> = ["database", "server"].iter().flat_map(|name| out_of_order(name)).collect();
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

/// Returns the dependencies of a crate that differ from its table in ARCHITECTURE.md.
fn out_of_order(name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let section = text.split(&format!("## Layers of `{name}`\n")).nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap_or("");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let mut layer_of: BTreeMap<String, usize> = BTreeMap::new();
    for (number, row) in rows.enumerate() {
        let names = row.split('|').nth(1).unwrap_or("");
        layer_of.extend(names.split('`').skip(1).step_by(2).map(|name| (name.to_string(), number)));
    }
    let (modules, mut findings) = (modules_of(name), Vec::new());
    for name in layer_of.keys().filter(|name| !modules.contains_key(*name)) {
        findings.push(format!("there is no module {name}"));
    }
    for (module, found) in edges(&modules) {
        let Some(layer) = layer_of.get(&module) else {
            findings.push(format!("{module} is in no layer"));
            continue;
        };
        for (name, why) in found.iter().filter(|(name, _)| layer_of.get(*name) > Some(layer)) {
            findings.push(format!("{module} lies below {name}, and takes of it {why}"));
        }
    }
    findings
}
