//! Each new key is read, checked, shown and explained by these tests.

use super::*;

#[test]
fn every_key_is_read_and_its_mistakes_are_told() {
    assert_eq!(trials::unsound(&TOP), Vec::<String>::new());
    for mistake in trials::mistakes(&TOP) {
        let error = parse(&mistake.text).expect_err(&mistake.text).to_string();
        for said in &mistake.says {
            assert!(error.contains(said), "{error}: {said} of\n{}", mistake.text);
        }
    }
}

/// Each key at the top and of a single table has a variable, which is read as the key is.
#[test]
fn a_mistake_in_a_variable_is_told_as_one_in_the_file() {
    let name = Path::new("/etc/starhaul/gw.toml");
    let parse = |text: &str, variable: &str, value: &str| {
        let mut document = Document::new(name, text);
        let variable = (format!("{VARIABLES}{variable}").into(), value.into());
        document.set_variables(VARIABLES, &TOP, std::iter::once(variable))?;
        rules::read(&document, name, |_| None)
    };
    let known = trials::in_variables(&TOP, parse).unwrap();
    assert!(known > 50);
}

#[test]
fn the_defaults_that_the_sample_shows_are_those_in_force() {
    let config = parse(&Config::sample()).unwrap();
    assert_eq!(
        (config.datagram_rules.len(), config.connection_rules.len()),
        (3, 4)
    );
    let (short, long) = trials::spelled_out(&TOP);
    assert_eq!(
        format!("{config:?}"),
        format!("{:?}", parse(&short).unwrap())
    );
    assert!(long.lines().count() > short.lines().count() + 50, "{long}");
    let long = parse(&long).unwrap_or_else(|error| panic!("{error}\n{long}"));
    assert_eq!(format!("{config:?}"), format!("{long:?}"));
    let decided = trials::decided(&TOP);
    assert_eq!(decided.len(), 6, "three keys, two values of each other one");
    for (short, long) in decided {
        let [short, long] = [short, long].map(|text| {
            let config = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            format!("{config:?}")
        });
        assert_eq!(short, long);
    }
}

/// It is the manual page starhaul-gateway.toml(5), too.
#[test]
fn the_reference_is_as_defined() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    trials::pinned(Path::new(file), &TOP).unwrap();
}
