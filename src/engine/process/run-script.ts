// Builds the shell script of a run: it runs the command as its child and stores its exit code, even
// if no platform is running then. Pure.
import { quoteWord } from '../../base/text/shell-words.ts';

export interface RunScriptOptions {
  /** Program and arguments. */
  command: readonly string[];
  /** Variables that a shell may not pass on unchanged. */
  oddVariables: Readonly<Record<string, string>>;
  /** One line for its standard input. Default: none. */
  input?: string | undefined;
}

/** The shell reads the script from its input; process lists show the run's file as its name. */
export function shellArgs(runFile: string): string[] {
  return ['-s', runFile];
}

/** File descriptor for the exit code. */
export const EXIT_FD = 3;

/** The line after the input, which is JSON. */
const END = 'end of input';

/** Variables that shells set, change or read themselves, and names that they do not accept. */
const ODD_NAME =
  /^(?:_|PWD|OLDPWD|SHLVL|IFS|OPT[A-Z]+|PPID|LINENO|PS\d|ENV|BASH\w*|SHELLOPTS|POSIXLY_CORRECT|RANDOM|SECONDS|HIST\w*|U?EUID|UID|GROUPS|DIRSTACK|FUNCNAME|COLUMNS|LINES)$|[^A-Za-z0-9_]/;

/** Variables that shells add to the environment of their children. */
const ADDED_BY_SHELLS = ['PWD', 'OLDPWD', 'SHLVL', '_'];

export function isOddName(name: string): boolean {
  return ODD_NAME.test(name);
}

/**
 * Uses only built-in commands, except `env`: the PATH is the container's. The script ignores a TERM
 * sent to the whole group; the command gets it as usual, because caught signals are not inherited.
 */
export function writeRunScript({ command, input, oddVariables }: RunScriptOptions): string {
  const unset = ADDED_BY_SHELLS.map((name) => `-u ${name}`);
  const assignments = Object.entries(oddVariables).map(([name, value]) => `${name}=${value}`);
  const words = [...assignments, ...command].map(quoteWord);
  // A here-document: its text is in no list of processes.
  const [source, ...lines] = input === undefined ? ['/dev/null'] : [`<'${END}'`, input, END];
  return [
    // One compound command: nothing runs if the script is cut short.
    '{',
    'trap : TERM INT HUP',
    // The shell's own messages, such as "Killed", are not the container's output.
    'exec 4>&2 2>/dev/null',
    'umask 022',
    // In a subshell: some shells redirect themselves while a command runs.
    `(exec /usr/bin/env ${unset.join(' ')} -- ${words.join(' ')} <${source} 2>&4 4>&- ${EXIT_FD}>&-)`,
    ...lines,
    `echo "$?" >&${EXIT_FD}`,
    // Kills the rest of its group, this shell included.
    'kill -9 -$$',
    '}',
    '',
  ].join('\n');
}
