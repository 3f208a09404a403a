// The shell script that one run of a container is: it runs the command as its child and leaves behind how
// that ended, also where no platform is there any more to see it. Pure.
import { quoteWord } from '../../base/shell-words.ts';

export interface RunScriptOptions {
  /** Program and arguments. */
  command: readonly string[];
  /** Variables that a shell cannot be trusted to pass on. */
  oddVariables: Readonly<Record<string, string>>;
}

/** The shell reads the script from its input; the run's file names it in process lists. */
export function shellArgs(runFile: string): string[] {
  return ['-s', runFile];
}

/** File descriptor that the exit code is written to. */
export const EXIT_FD = 3;

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
export function writeRunScript({ command, oddVariables }: RunScriptOptions): string {
  const unset = ADDED_BY_SHELLS.map((name) => `-u ${name}`);
  const assignments = Object.entries(oddVariables).map(([name, value]) => `${name}=${value}`);
  const words = [...assignments, ...command].map(quoteWord);
  return [
    // One command: of a script that was cut short nothing is run.
    '{',
    'trap : TERM INT HUP',
    // What the shell itself has to say, as "Killed", is not the container's output.
    'exec 4>&2 2>/dev/null',
    'umask 022',
    // In a subshell: some shells redirect themselves for as long as a command runs.
    `(exec /usr/bin/env ${unset.join(' ')} -- ${words.join(' ')} </dev/null 2>&4 4>&- ${EXIT_FD}>&-)`,
    `echo "$?" >&${EXIT_FD}`,
    // What is left of its own group, this shell included.
    'kill -9 -$$',
    '}',
    '',
  ].join('\n');
}
