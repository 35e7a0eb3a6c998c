//! `sa-sandbox-run POLICY PROGRAM [ARG…]`: runs a command in a sandbox. `sa-sandbox-run policy`:
//! prints the policy that this user gets by default. The variable
//! `SA_TEST_LANDLOCK` is the highest version of Landlock to use.

use std::os::fd::AsFd as _;
use std::process::ExitCode;

use sa_sandbox::{Command, Namespaces, Policy};

fn main() -> ExitCode {
    if let Some(code) = sa_sandbox::run_if_asked() {
        return code;
    }
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(125)
        }
    }
}

fn run() -> std::io::Result<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let (policy, program) = match (words.next(), words.next()) {
        (Some(policy), Some(program)) => (policy, program),
        (Some(word), None) if word == "policy" => {
            println!("{}", serde_json::to_string(&Policy::new(false))?);
            return Ok(ExitCode::SUCCESS);
        }
        _ => return Err(std::io::Error::other("usage: sa-sandbox-run POLICY PROGRAM [ARG…]")),
    };
    let policy = serde_json::from_str(&policy.to_string_lossy())?;
    let command = Command { program, args: words.collect(), terminal: false };
    let (input, output, errors) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let mut namespaces = Namespaces::enter(policy)?;
    if let Some(highest) = std::env::var("SA_TEST_LANDLOCK").ok().and_then(|text| text.parse().ok())
    {
        namespaces = namespaces.with_landlock(highest);
    }
    let mut started =
        namespaces.start(Some(command), [input.as_fd(), output.as_fd(), errors.as_fd()])?;
    let status = started.init.wait()?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(137)))
}
