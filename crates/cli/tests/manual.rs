//! Shell completion and manual pages.

mod support;

use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
};

use support::{fails, ok, run};

#[test]
fn shells_complete_commands_and_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let script = ok(&["completion", shell]);
        for word in ["umount", "cache-expire", "readdir-cache"] {
            assert!(script.contains(word), "{shell}: {word} is not in it");
        }
    }
    assert!(fails(&["completion", "tcsh"]).contains("bash"));
}

#[test]
fn bash_completes_what_was_begun() {
    let script = ok(&["completion", "bash"]);
    let ask = "COMP_WORDS=(sluice mount --cache-ex); COMP_CWORD=2; _sluice sluice --cache-ex mount; echo \"${COMPREPLY[@]}\"";
    let Ok(mut bash) = Command::new("bash").arg("-s").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    else {
        return;
    };
    let mut input = bash.stdin.take().expect("a pipe");
    input.write_all(format!("{script}\n{ask}\n").as_bytes()).expect("written");
    drop(input);
    let output = bash.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "--cache-expire");
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("man1");
    ok(&["man", &pages.display().to_string()]);
    let (_, help) = run(&["--help"]);
    let commands =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<_> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"mount") && names.contains(&"fsck"), "{help}");
    for name in names.into_iter().filter(|name| *name != "help") {
        let page = fs::read_to_string(pages.join(format!("sluice-{name}.1"))).expect(name);
        assert!(page.contains("Example"), "{name}");
    }
    assert!(fs::read_to_string(pages.join("sluice-mount.1")).expect("read").contains("cache\\-expire"));
    fs::write(folder.path().join("file"), "").expect("written");
    let said = fails(&["man", &folder.path().join("file/below").display().to_string()]);
    assert!(said.contains("file/below"), "{said}");
}
