// The shell script that one run of a container is: it claims the run, runs the command as its child,
// and leaves behind how that ended, also where no platform is there any more to see it. Pure.
import { quoteWord } from '../shell-words.ts';

export interface RunScriptOptions {
  /** Program and arguments. */
  command: readonly string[];
  /** Made by the script that takes the run, and by one only. */
  runFile: string;
  /** One line that is kept in the run file. */
  note: string;
  /** `cgroup.procs` of the groups that it joins. */
  joins: readonly string[];
  /** Variables that a shell cannot be trusted to pass on. */
  oddVariables: Readonly<Record<string, string>>;
}

/** What shells set, change or read for themselves; and names that they do not take for one. */
const ODD_NAME =
  /^(?:_|PWD|OLDPWD|SHLVL|IFS|OPT[A-Z]+|PPID|LINENO|PS\d|ENV|BASH\w*|SHELLOPTS|POSIXLY_CORRECT|RANDOM|SECONDS|HIST\w*|U?EUID|UID|GROUPS|DIRSTACK|FUNCNAME|COLUMNS|LINES)$|[^A-Za-z0-9_]/;

/** What shells add to the environment of what they start. */
const ADDED_BY_SHELLS = ['PWD', 'OLDPWD', 'SHLVL', '_'];

export function isOddName(name: string): boolean {
  return ODD_NAME.test(name);
}

/**
 * Built-in commands only, `env` apart: the PATH is the container's. TERM for the whole group leaves the
 * script alive; the command gets it as usual, because what is caught is not passed on.
 */
export function writeRunScript(options: RunScriptOptions): string {
  const { command, joins, note, oddVariables, runFile } = options;
  const run = quoteWord(runFile);
  const unset = ADDED_BY_SHELLS.map((name) => `-u ${name}`);
  const assignments = Object.entries(oddVariables).map(([name, value]) => `${name}=${value}`);
  const words = [...assignments, ...command].map(quoteWord);
  return [
    'trap : TERM INT HUP',
    // What the shell itself has to say, as "Killed", is not the container's output.
    'exec 3>&2 2>/dev/null',
    'read -r stat < /proc/self/stat',
    'read -r boot < /proc/sys/kernel/random/boot_id',
    // Outside of its groups no limit would hold: then the run does not begin.
    ...joins.map((procs) => `echo $$ > ${quoteWord(procs)} || exit 0`),
    // The file is made only if it is not there: of two scripts for the same run, one goes on.
    'set -C',
    `printf '%s\\n' "$stat" "$boot" ${quoteWord(note)} > ${run} || exit 0`,
    'set +C',
    // In a subshell: some shells redirect themselves for as long as a command runs.
    `(exec /usr/bin/env ${unset.join(' ')} -- ${words.join(' ')} 2>&3 3>&-)`,
    `echo "$?" >> ${run}`,
    // What is left of its own group, this shell included.
    'kill -9 -$$',
    '',
  ].join('\n');
}
