// Loads a handler from a copy of its project in a process of its own, to find out whether a worker
// can load it from these files alone. Its setup does not run.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';

const entry = fileURLToPath(
  new URL(`./load-check-process${extname(import.meta.url)}`, import.meta.url),
);

const LOAD_TIMEOUT_MS = 60_000;

interface LoadCheck {
  /** Folder with the files of the archive. */
  copy: string;
  /** Folder of the project. Its installed packages are used. */
  project: string;
  /** Path of the handler in both. */
  entry: string;
  env: Readonly<Record<string, string | undefined>>;
  timeoutMs?: number;
}

/** What the process sends. */
export type LoadReport = { problem: string } | { undeclared: UndeclaredImport[] };

/** An import of a package that package.json does not list. */
export interface UndeclaredImport {
  /** Path of the importing file in the project. */
  file: string;
  packageName: string;
  /** Installed version. */
  version: string | undefined;
  /** The devDependencies list it. */
  isDevelopment: boolean;
}

/** Says why a worker could not load the handler; undefined if it could. Paths are those of the project. */
export async function findLoadProblem(check: LoadCheck): Promise<string | undefined> {
  const { copy, env, project, timeoutMs = LOAD_TIMEOUT_MS } = check;
  const child = fork(entry, [copy, project, check.entry], {
    cwd: copy,
    env: { ...env },
    execArgv: [],
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
  });
  let report: LoadReport | undefined;
  child.once('message', (message) => {
    // The process sends one report.
    report = message as LoadReport;
    child.kill('SIGKILL');
  });
  const [code, signal] = await once(child, 'close');
  if (report === undefined) return describeEnd(code, signal, timeoutMs);
  if ('problem' in report) return report.problem.replaceAll(copy, project);
  const [first] = report.undeclared;
  if (!first) return undefined;
  const { file, isDevelopment, packageName, version = '*' } = first;
  const remedy = isDevelopment
    ? 'move it there from the devDependencies'
    : `add "${packageName}": "${version}", which is installed here`;
  return `${file}: imports ${packageName}, which the dependencies of package.json do not list: ${remedy}`;
}

function describeEnd(code: unknown, signal: unknown, timeoutMs: number): string {
  if (signal === 'SIGKILL') return `the handler did not load within ${timeoutMs / 1_000} s`;
  return `the process exited while it loaded the handler (${signal ?? `code ${code}`})`;
}
