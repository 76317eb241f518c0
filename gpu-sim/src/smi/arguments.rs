use std::ffi::OsString;

use super::{failure::Failure, mig, modes::Change, policy, query::Query};

pub(super) const HELP: &str = "\
nvidia-smi of a simulated node

  (no arguments)           a summary of the GPUs
  -L, --list-gpus          one line per GPU
  --query-gpu=FIELD,...    values of each GPU; needs --format=csv[,noheader][,nounits]
  -q -x                    everything about each GPU, as XML
  -i, --id=GPU,...         only these GPUs, by index, UUID, serial number or PCI address
  -c, --compute-mode=MODE  DEFAULT, PROHIBITED or EXCLUSIVE_PROCESS, or its number
  -pm, --persistence-mode=0|1
  -mig, --multi-instance-gpu=0|1
  -r, --gpu-reset          reset; no process may use the GPU
  compute-policy --list|--set-timeslice=0|1|2|3 [-i GPU,...]
                           how processes take turns: default, short, medium or long
  topo -m                  how the GPUs are connected
  mig -lgip|-lgipp|-lcip|-lgi|-lci|-cgi PROFILE[:START],... [-C]|-cci [ID,...]|-dgi|-dci [-gi ID,...] [-ci ID,...] [-i GPU,...]
  -h, --help               this text
";

/// What was asked for.
#[derive(Debug)]
pub(super) struct Arguments {
    pub(super) command: Command,
    /// Empty for all GPUs.
    pub(super) ids: Vec<String>,
}

#[derive(Debug)]
pub(super) enum Command {
    Table,
    List,
    Query(Query),
    Log,
    Policies,
    Mig(mig::Command),
    Topology,
    Change(Change),
    Help,
}

pub(super) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Arguments, Failure> {
    let mut arguments = arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .peekable();
    if arguments.next_if_eq("mig").is_some() {
        let (command, ids) = mig::parse(&arguments.collect::<Vec<_>>())?;
        let command = Command::Mig(command);
        return Ok(Arguments { command, ids });
    }
    if arguments.next_if_eq("compute-policy").is_some() {
        return policy::parse(&mut arguments);
    }
    if arguments.next_if_eq("topo").is_some() {
        let command = Command::Topology;
        let ids = Vec::new();
        return match arguments.next().as_deref() {
            Some("-m" | "--matrix") if arguments.peek().is_none() => Ok(Arguments { command, ids }),
            None => Err(Failure::no_command()),
            Some("-m" | "--matrix") => Err(Failure::unknown_option(&arguments.next().unwrap_or_default())),
            Some(other) => Err(Failure::unknown_option(other)),
        };
    }
    let (mut list, mut query, mut format, mut ids, mut change) = (false, None, None, None, None);
    let (mut all, mut xml) = (false, false);
    while let Some(argument) = arguments.next() {
        let (option, given) = option(&argument);
        let mut value = || value_of(option, given, &mut arguments);
        match option {
            "-h" | "--help" => {
                return Ok(Arguments {
                    command: Command::Help,
                    ids: Vec::new(),
                });
            }
            "-L" | "--list-gpus" => list = true,
            "-q" | "--query" => all = true,
            "-x" | "--xml-format" => xml = true,
            "-r" | "--gpu-reset" => change = Some(Change::Reset),
            "-i" | "--id" => ids = Some(value()?),
            "-c" | "--compute-mode" | "-pm" | "--persistence-mode" | "-mig" | "--multi-instance-gpu" => {
                change = Some(Change::parse(option, &value()?)?);
            }
            "--query-gpu" => query = Some(value()?),
            // Without a query the real one does not know this option.
            "--format" => format = Some((argument.clone(), value()?)),
            _ => return Err(Failure::unknown_option(&argument)),
        }
    }
    if change.is_some() && (list || query.is_some()) {
        return Err(not_valid("-L"));
    }
    if all || xml {
        if list || query.is_some() || format.is_some() || change.is_some() {
            return Err(not_valid(if all { "-q" } else { "-x" }));
        }
        if !(all && xml) {
            return Err(Failure::usage("ERROR: Only -q and -x together are simulated, XML."));
        }
    }
    let command = match (list, query, format) {
        (false, None, None) if let Some(change) = change => Command::Change(change),
        (true, Some(_), _) => return Err(not_valid("-L")),
        (_, None, Some((argument, _))) => return Err(Failure::unknown_option(&argument)),
        (true, None, None) if ids.is_some() => return Err(not_valid("-i")),
        (true, None, None) => Command::List,
        (false, None, None) if all => Command::Log,
        (false, None, None) => Command::Table,
        (false, Some(_), None) => return Err(Failure::usage("ERROR: Option --query-gpu needs --format=csv.")),
        (false, Some(fields), Some((_, format))) => Command::Query(Query::parse(&fields, &format)?),
    };
    let ids = ids.map(|ids| ids_of(&ids)).unwrap_or_default();
    Ok(Arguments { command, ids })
}

/// An option, and its value where that stands behind `=`.
pub(super) fn option(argument: &str) -> (&str, Option<&str>) {
    match argument.split_once('=') {
        Some((option, value)) => (option, Some(value)),
        None => (argument, None),
    }
}

/// The value of an option, given with it or the next of the arguments.
pub(super) fn value_of(
    option: &str,
    given: Option<&str>,
    rest: &mut impl Iterator<Item = String>,
) -> Result<String, Failure> {
    let value = given.map(str::to_owned).or_else(|| rest.next());
    value.ok_or_else(|| Failure::no_value(option))
}

/// The GPUs of a list such as `0,GPU-1`.
pub(super) fn ids_of(list: &str) -> Vec<String> {
    list.split(',').map(|id| id.trim().to_owned()).collect()
}

fn not_valid(option: &str) -> Failure {
    Failure::usage(format!(
        "ERROR: Option {option} is not valid for this command. Please run 'nvidia-smi -h' for help.\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message and exit code for arguments that are refused.
    #[track_caller]
    fn check(arguments: &str, message: &str, exit_code: u8) {
        let failure = parse(arguments.split_whitespace().map(OsString::from)).unwrap_err();
        assert_eq!(
            (failure.message.trim_end(), failure.exit_code),
            (message, exit_code),
            "{arguments}"
        );
    }

    #[test]
    fn what_the_real_one_refuses_is_refused_in_its_words() {
        let unknown = |option| format!("ERROR: Option {option} is not recognized. Please run 'nvidia-smi -h'.");
        check("--bad", &unknown("--bad"), 255);
        check("extra", &unknown("extra"), 255);
        check("--format=csv", &unknown("--format=csv"), 255);
        let not_valid = "ERROR: Option -i is not valid for this command. Please run 'nvidia-smi -h' for help.";
        check("-L -i 5", not_valid, 2);
        check("-i 0 -L", not_valid, 2);
        check(
            "--query-gpu=bad,index --format=csv",
            "Field \"bad\" is not a valid field to query.",
            2,
        );
        check(
            "--query-gpu=index --format=csv,bad",
            "Format modifier is not recognized.",
            2,
        );
    }

    #[test]
    fn an_option_without_its_value_is_refused() {
        check("-i", "ERROR: Option -i needs a value.", 2);
        check("--query-gpu=index", "ERROR: Option --query-gpu needs --format=csv.", 2);
    }

    #[test]
    fn a_value_may_follow_an_equals_sign_or_a_blank() {
        for arguments in ["-i 0,1", "--id=0,1", "-i=0,1"] {
            let parsed = parse(arguments.split_whitespace().map(OsString::from)).unwrap();
            assert_eq!(parsed.ids, ["0", "1"]);
        }
    }
}
