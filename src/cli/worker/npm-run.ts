// Runs npm with all processes that it starts, such as git and scripts of packages: they end with it, with its time limit and
// with this process.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { killGroup } from '../../base/process/process-groups.ts';
import { CommandError } from '../command.ts';
import { inheritWithoutKeys, readVariable } from '../config.ts';

/** Characters at the end of npm's output in an error. */
const SHOWN_OUTPUT = 2_000;
const CA_HINT =
  '; if the registry has a certificate of your own authority, set NODE_EXTRA_CA_CERTS for `serve`, or for containers with `deploy --env`';
/** Signals that end this process; they do not reach npm, which has a session of its own. */
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** @throws CommandError with npm's last output */
export async function runNpm(
  args: readonly string[],
  { folder, timeoutMs }: { folder: string; timeoutMs: number },
): Promise<void> {
  const [program, ...first] = findNpm();
  const child = spawn(program ?? 'npm', [...first, ...args], {
    cwd: folder,
    env: inheritWithoutKeys({ npm_config_update_notifier: 'false' }),
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  const endGroup = () => {
    if (child.pid !== undefined) killGroup(child.pid);
  };
  const release = endWithProcess(endGroup);
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    endGroup();
  }, timeoutMs);
  let output = '';
  const note = (part: Buffer) => {
    output = (output + part.toString('utf8')).slice(-SHOWN_OUTPUT);
  };
  child.stdout.on('data', note);
  child.stderr.on('data', note);
  const { code, error } = await new Promise<{ code: number | null; error?: Error }>((resolve) => {
    child.on('error', (failed) => resolve({ code: null, error: failed }));
    child.on('close', (exitCode) => resolve({ code: exitCode }));
    // A process that npm has left behind would hold its output open.
    child.on('exit', endGroup);
  });
  clearTimeout(timer);
  release();
  if (code === 0) return;
  const what = `npm ${args[0]} of the version failed`;
  if (error) {
    throw new CommandError(
      `${what}: ${error.message}; the version has dependencies, so the worker needs npm beside its Node or on its PATH`,
    );
  }
  const why = isLate
    ? `it took longer than ${timeoutMs / 1_000} s (--install-timeout)`
    : `exit code ${code}`;
  const missing = isLate ? undefined : findMissing(output);
  if (missing !== undefined) {
    throw new CommandError(`Could not install ${missing}: not in the registry`);
  }
  const hint = /self-signed certificate|unable to (?:get|verify)/i.test(output) ? CA_HINT : '';
  throw new CommandError(`${what}: ${why}: ${readErrors(output)}${hint}`);
}

/** @returns the function that undoes it */
function endWithProcess(end: () => void): () => void {
  const onSignal = (signal: NodeJS.Signals) => {
    end();
    release();
    // With the default effect, now that nothing listens.
    process.kill(process.pid, signal);
  };
  process.once('exit', end);
  for (const signal of SIGNALS) process.once(signal, onSignal);
  const release = () => {
    process.off('exit', end);
    for (const signal of SIGNALS) process.off(signal, onSignal);
  };
  return release;
}

/** The package or the version that the registry lacks, as npm names it. */
function findMissing(output: string): string | undefined {
  const [, name, version] =
    /^npm error 404 .*'(\S+@\S+)'|^npm error notarget No .*version found for (\S+?)\.?$/m.exec(
      output,
    ) ?? [];
  return name ?? version;
}

/** npm's errors in one line, without its warnings and the path of its log. */
function readErrors(output: string): string {
  const errors = [...output.matchAll(/^npm error (.*)$/gm)].map(([, text = '']) => text);
  const said = errors.filter((text) => !/complete log of this run|^code |^errno /.test(text));
  return (said.length > 0 ? said : [output.trim().split('\n').at(-1) ?? '']).join('; ');
}

/** The program and its first arguments: npm beside the running Node, else the one on the PATH. */
export function findNpm(): string[] {
  const beside = join(dirname(process.execPath), '../lib/node_modules/npm/bin/npm-cli.js');
  if (existsSync(beside)) return [process.execPath, beside];
  const folders = (readVariable('PATH') ?? '').split(':');
  const found = folders.map((folder) => join(folder, 'npm')).find((path) => existsSync(path));
  return [found ?? 'npm'];
}
