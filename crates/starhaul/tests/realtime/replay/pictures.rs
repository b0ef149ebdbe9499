//! `--plot`, `--trace` and the log of its run.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use super::{QUICK, allowed, run};
use crate::{
    emulated::{STARHAUL, json, probe, replay},
    turn::{Load, turn},
};

#[test]
fn a_plot_is_a_picture_or_a_page_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    for (name, said) in [
        ("plot.png", ".svg for a picture or in .html for a page"),
        ("plot", ".svg"),
        ("no/folder/plot.svg", "cannot write the plot"),
    ] {
        let output = run(&[
            &QUICK[..],
            &["--plot", &file(name), "--", "touch", &file("ran")],
        ]
        .concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && text.contains(said),
            "{name}: {text}"
        );
    }
    assert!(
        !Path::new(&file("ran")).exists(),
        "it is told before the command runs"
    );
    let _turn = turn(Load::Light);
    if !allowed() {
        return;
    }
    let server = format!("{} sink /dev/null", probe());
    for name in ["plot.svg", "plot.html"] {
        let links = [
            "--link",
            "leo",
            "--up",
            // It is not over when a busy computer starts the command late.
            "rate=5mbit,delay=20ms,loss=20%,outage=200ms..2500ms",
            "--down",
            "delay=5ms",
            "--seed",
            "7",
        ];
        let rest = [
            "--server",
            &server,
            "--plot",
            &file(name),
            "--",
            &probe(),
            "blast",
            "4",
            "3",
            "1000",
        ];
        let output = run(&[&links[..], &rest].concat());
        assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
        let text = fs::read_to_string(file(name)).unwrap();
        for word in [
            "blast 4 3 1000",
            "seed 7",
            "leo up: rate=5mbit,delay=20ms,loss=20%",
            "leo down: delay=5ms",
            ">Throughput<",
            ">Delay of packets<",
            ">Dropped<",
            "at random",
            "in outages",
            "starhaul replay --link leo",
        ] {
            assert!(text.contains(word), "{name}: {word}: {text}");
        }
    }
}

#[test]
fn a_log_names_the_command_as_a_shell_takes_it() {
    let _turn = turn(Load::Light);
    if !allowed() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("a log");
    let script = "echo \"it's  $STARHAUL_SERVER\"";
    let output = run(&[
        &QUICK[..],
        &["--log", log.to_str().unwrap(), "--", "sh", "-c", script],
    ]
    .concat());
    // The address differs while other runs exist.
    let said = |output: Output| {
        let said = String::from_utf8(output.stdout).unwrap();
        said.starts_with("it's  198.18.") && said.lines().count() == 1
    };
    assert!(said(output));
    let text = fs::read_to_string(&log).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("# command: starhaul "))
        .unwrap();
    let output = Command::new("sh")
        .args(["-c", &format!("{STARHAUL} {line}")])
        .output()
        .unwrap();
    assert!(said(output), "{line}");
}

#[test]
fn files_of_an_earlier_run_stay_when_there_is_none() {
    let _turn = turn(Load::Light);
    if !allowed() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    fs::write(file("old.log"), "an earlier log").unwrap();
    let failed = |log: &str| {
        let more = [
            "--server",
            "false",
            "--plot",
            &file("new.svg"),
            "--log",
            &file(log),
        ];
        run(&[&QUICK[..], &more, &["--", "true"]].concat())
    };
    let output = failed("old.log");
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(
        fs::read_to_string(file("old.log")).unwrap(),
        "an earlier log"
    );
    failed("new.log");
    for name in ["new.log", "new.svg"] {
        assert!(!Path::new(&file(name)).exists(), "{name}");
    }
    // A command that fails is a run all the same; its log takes the place of the earlier one.
    let log = file("old.log");
    let plot = file("new.svg");
    let arguments = [
        "--json", "--plot", &plot, "--log", &log, "--", "sh", "-c", "exit 7",
    ];
    let arguments = [&QUICK[..], &arguments].concat();
    let mut command = Command::new(STARHAUL);
    command
        .arg("replay")
        .args(&arguments[..])
        .stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert!(fs::metadata(&plot).unwrap().len() > 1000);
    assert!(fs::read_to_string(&log).unwrap().starts_with("# starhaul "));
}

#[test]
fn a_trace_stands_for_both_directions() {
    let missing = run(&["--trace", "/no/such/recording", "--", "true"]);
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(
        missing.status.code() == Some(2) && said.contains("no such file or folder"),
        "{said}"
    );
    let _turn = turn(Load::Light);
    if !allowed() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    for (way, delay) in [("up", "30\n30\n"), ("down", "7\n7\n")] {
        file(&format!("{way}-bw.txt"), "1\n2\n3\n4\n");
        file(&format!("{way}-delay.txt"), delay);
    }
    file(
        "summary.json",
        r#"[{"direction":"up","loss_setting":"0%"},{"direction":"down","loss_setting":"0%"}]"#,
    );
    let folder = directory.path().to_str().unwrap();
    let server = format!("{} sink /dev/null", probe());
    let probe = probe();
    let rest = [
        "--server", &server, "--json", "--", &probe, "ping", "50", "0.5",
    ];
    let output = replay(
        &[
            &["--trace", &format!("{folder},queue=100p"), "--link", "dish"][..],
            &rest,
        ]
        .concat(),
    )
    .output()
    .unwrap();
    let result = json(&output);
    let link = &result["links"][0];
    assert_eq!(link["name"], "dish");
    let up = format!("bw={folder}/up-bw.txt,delay={folder}/up-delay.txt,loss=0%,queue=100p");
    assert_eq!(link["up"]["spec"], up);
    assert_eq!(link["down"]["spec"], up.replace("up-", "down-"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let took_ms: Vec<f64> = said
        .lines()
        .filter_map(|line| line.parse::<f64>().ok())
        .map(|ns| ns / 1e6)
        .collect();
    assert!(
        took_ms.len() > 3 && took_ms.iter().all(|took| *took >= 37.0),
        "{said}"
    );
}
