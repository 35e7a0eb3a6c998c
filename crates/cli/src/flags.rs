//! The options that set a configuration key, generated from the table of flags.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};

use sa_gateway::config::flags::{FLAGS, Flag};

/// The options that every command accepts.
pub(crate) type Everywhere = Typed<true>;
/// The additional options of commands that start a gateway or inspect its configuration.
pub(crate) type OfGateway = Typed<false>;

/// The flags of one group that were typed: keys with their raw values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Typed<const EVERYWHERE: bool>(pub(crate) Vec<(&'static str, OsString)>);

impl<const EVERYWHERE: bool> Typed<EVERYWHERE> {
    fn flags() -> impl Iterator<Item = &'static Flag> {
        FLAGS.iter().filter(|flag| flag.everywhere == EVERYWHERE)
    }
}

impl<const EVERYWHERE: bool> clap::Args for Typed<EVERYWHERE> {
    fn augment_args(command: Command) -> Command {
        Self::flags().fold(command, |command, flag| {
            let arg =
                Arg::new(flag.long).long(flag.long).help(flag.meaning().trim_end_matches('.'));
            let arg = match flag.value {
                // Any value is accepted here. Invalid values are reported later, with the same
                // message for all sources.
                Some(name) => {
                    let hint = match name {
                        "DIR" => ValueHint::DirPath,
                        "FILE" => ValueHint::FilePath,
                        _ => ValueHint::Unknown,
                    };
                    arg.value_name(name)
                        .value_hint(hint)
                        .value_parser(clap::value_parser!(OsString))
                }
                None => arg.action(ArgAction::SetTrue),
            };
            command.arg(if EVERYWHERE {
                arg.global(true).help_heading("Global options")
            } else {
                arg
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const EVERYWHERE: bool> clap::FromArgMatches for Typed<EVERYWHERE> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut typed = Self::default();
        typed.update_from_arg_matches(matches)?;
        Ok(typed)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let typed = |flag: &Flag| match flag.value {
            Some(_) => matches.get_one::<OsString>(flag.long).cloned(),
            None => matches.get_flag(flag.long).then(|| "true".into()),
        };
        self.0 = Self::flags().filter_map(|flag| Some((flag.key, typed(flag)?))).collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(path: &[&str]) -> Command {
        path.iter()
            .fold(crate::command(), |command, name| command.find_subcommand(name).unwrap().clone())
    }

    /// Each flag of a gateway sets a key and must be in the table, except the flags listed here.
    #[test]
    fn every_flag_of_a_gateway_is_in_the_table() {
        const NO_KEY: [&str; 1] = ["examples"];
        for name in ["serve", "up"] {
            for arg in command(&[name]).get_arguments() {
                let long = arg.get_long().unwrap();
                let known = FLAGS.iter().any(|flag| flag.long == long) || NO_KEY.contains(&long);
                assert!(known, "{name}: --{long} sets a key, and is not in the table");
            }
        }
    }

    #[test]
    fn what_starts_a_gateway_and_what_asks_about_one_take_the_same_flags() {
        for path in [
            &["serve"][..],
            &["up"],
            &["config", "show"],
            &["config", "explain"],
            &["config", "check"],
        ] {
            for flag in FLAGS {
                let above = if flag.everywhere { &path[..0] } else { path };
                let command = command(above);
                let arg = command.get_arguments().find(|arg| arg.get_long() == Some(flag.long));
                let arg = arg.unwrap_or_else(|| panic!("{path:?} has no --{}", flag.long));
                assert_eq!(arg.is_global_set(), flag.everywhere, "--{}", flag.long);
                assert!(
                    arg.get_help().is_some_and(|help| !help.to_string().is_empty()),
                    "--{}",
                    flag.long
                );
            }
        }
    }
}
